"""`patrac study cifar10`: both layouts of the data, standardising, scores, pieces; the real files where they are."""

import csv
import io
import json
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest

import patrac_native as pn
from patrac_native.cli.main import main
from patrac_native.studies.cifar10 import MODELS, score_classes
from patrac_native.studies.cifar10_data import load_images

# Chains and training this short deserve these warnings; the tests are about what is done with the results.
pytestmark = [
    pytest.mark.filterwarnings("ignore:train. the fit is poor"),
    pytest.mark.filterwarnings("ignore:train. max_epochs"),
]

TRAIN = [f"data_batch_{number}.bin" for number in range(1, 6)]


def batches(per_batch: int = 8) -> dict[str, np.ndarray]:
    """Six batches of noise whose mean tells the label, invented here: records of a label and 3072 bytes."""
    rng = np.random.default_rng(4)
    found = {}
    for name in [*TRAIN, "test_batch.bin"]:
        label = rng.integers(10, size=(per_batch, 1))
        pixels = np.clip(25 * label + rng.normal(0, 20, (per_batch, 3072)), 0, 255)
        found[name] = np.hstack([label, pixels]).astype(np.uint8)
    return found


def write_folder(folder: Path, content: dict[str, np.ndarray], *, xz: bool = False) -> Path:
    folder.mkdir(parents=True)
    for name, records in content.items():
        raw = records.tobytes()
        (folder / (f"{name}.xz" if xz else name)).write_bytes(lzma.compress(raw) if xz else raw)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("cifar") / "plain", batches())


def test_every_layout_gives_the_same_images(tmp_path: Path, data: Path) -> None:
    content = batches()
    write_folder(tmp_path / "xz", content, xz=True)
    write_folder(tmp_path / "whole" / "cifar-10-batches-bin", content)
    (tmp_path / "packed").mkdir()
    archive = tmp_path / "packed" / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as stream:
        for name, records in content.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            entry.size = records.nbytes
            stream.addfile(entry, io.BytesIO(records.tobytes()))
    plain = load_images(data)
    for other in (tmp_path / "xz", tmp_path / "whole", tmp_path / "packed", archive):
        found = load_images(other)
        for name in ("X", "y", "X_test", "y_test"):
            np.testing.assert_array_equal(getattr(found, name), getattr(plain, name))


def test_images_are_standardised_by_their_training_rows(data: Path) -> None:
    content, images = batches(), load_images(data, rows=20)
    train = np.concatenate([content[name] for name in TRAIN])[:20]
    assert images.X.shape == (20, 3072) and images.X_test.shape == (8, 3072)
    np.testing.assert_array_equal(images.y, train[:, 0])
    x, x_test = (part[:, 1:].astype(float) / 255 for part in (train, content["test_batch.bin"]))
    np.testing.assert_allclose(images.X_test, (x_test - x.mean(axis=0)) / x.std(axis=0), rtol=1e-5, atol=1e-6)
    # Sums of 20 rounded float32 values of order 1.
    assert np.abs(images.X.mean(axis=0)).max() < 20 * np.finfo(np.float32).eps


def test_a_pixel_that_never_changes_stays_finite(tmp_path: Path) -> None:
    content = batches()
    for records in content.values():
        records[:, 7] = 31
    images = load_images(write_folder(tmp_path / "constant", content))
    assert np.isfinite(images.X).all() and not images.X[:, 6].any()


def test_wrong_data_are_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    content = batches()
    cases = {
        "absent": ({}, "there is no data_batch_1.bin"),
        "short": (content | {"data_batch_1.bin": content["data_batch_1.bin"][:, :-1]}, "has 24576 bytes"),
        "label": (content | {"data_batch_2.bin": np.full((2, 3073), 10, np.uint8)}, "has the label 10"),
        "hole": ({name: part for name, part in content.items() if name != TRAIN[2]}, "no data_batch_3.bin"),
    }
    for name, (some, message) in cases.items():
        with pytest.raises((FileNotFoundError, ValueError), match=message):
            load_images(write_folder(tmp_path / name, some))
    with pytest.raises(ValueError, match=r"--rows must be from 1 to 40, the number of training images; got 41"):
        load_images(write_folder(tmp_path / "all", content), rows=41)
    assert main(["study", "cifar10", "--data", str(tmp_path / "absent"), "--out", out]) == 2
    assert not Path(out).exists()


def test_scores_are_those_of_the_definitions() -> None:
    rng = np.random.default_rng(2)
    f, y = rng.normal(size=(1, 5, 30, 10)).astype(np.float32), rng.integers(10, size=30)
    p = np.exp(f[0].astype(float))
    p /= p.sum(axis=-1, keepdims=True)
    scores = score_classes(f, y)
    by_draw = -np.log(p[:, np.arange(30), y]).mean(axis=1)
    mean = p.mean(axis=0)
    assert scores["nll"] == pytest.approx(by_draw.mean(), rel=1e-12)
    assert scores["nll_sd"] == pytest.approx(by_draw.std(ddof=1), rel=1e-9)
    assert scores["nlpd"] == pytest.approx(-np.log(mean[np.arange(30), y]).mean(), rel=1e-6)
    assert scores["accuracy"] == (mean.argmax(axis=1) == y).mean()
    assert scores["brier"] == pytest.approx(((mean - np.eye(10)[y]) ** 2).sum(axis=1).mean(), rel=1e-5)
    assert scores["entropy"] == pytest.approx(-(mean * np.log(mean)).sum(axis=1).mean(), rel=1e-5)
    assert scores["aleatoric"] == pytest.approx(-(p * np.log(p)).sum(axis=-1).mean(), rel=1e-5)
    assert scores["epistemic"] == pytest.approx(scores["entropy"] - scores["aleatoric"], abs=1e-6)


def test_study_writes_every_row_and_goes_on_from_its_pieces(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "study"
    words = ["study", "cifar10", "--data", str(data), "--out", str(out), "--steps", "100", "--draws", "20"]
    words += ["--hidden", "12", "12", "--max-epochs", "3"]
    assert main([*words, "--models", "Out(10)"]) == 2  # no row of the table
    some = ["Full", "Sep(10)", "Mix(4)", "Out(90)", "Mix(10), full likelihood"]
    assert main([*words, "--models", *some[:2]]) == 0
    capsys.readouterr()
    sampled, sample = [], pn.sample
    monkeypatch.setattr(pn, "sample", lambda post, *a, **k: sampled.append(post) or sample(post, *a, **k))
    assert main([*words, "--models", *some]) == 0
    # Two posteriors and the network are there; the three others have the likelihoods that their labels say.
    assert [post.likelihood.scale for post in sampled] == [1000.0, 1000.0, None]
    printed = " ".join(capsys.readouterr().out.split())
    assert "A scale of 1000 on a mean over 40 rows is the likelihood to the power 25" in printed
    assert "on the paper's 50,000 it is 0.02" in printed and "2.0850 (0.0280)" in printed
    with open(out / "results.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    found = {(row["model"], row["metric"]): float(row["value"]) for row in rows}
    assert {model for model, _ in found} == {"network", *some} and {row["study"] for row in rows} == {"cifar10"}
    assert all(np.isfinite(value) for value in found.values())
    assert found["Full", "dim"] == 3073 * 12 + 13 * 12 + 13 * 10
    # Out(90) takes all nodes of a narrower layer, and the page says so.
    assert found["Out(90)", "dim"] == 13 * 10 and "here Out(90) takes all 12" in printed
    assert found["Mix(4)", "steps"] == 100 and found["Mix(4)", "warmup_steps"] == 50
    assert found["network", "epistemic"] == 0 and found["Full", "epistemic"] > 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["training_rows"] == 40 and summary["results"][0]["model"] == "network"
    assert "Mix(10), full likelihood" in (out / "report.html").read_text()
    # Pieces of other settings are refused.
    assert main([*words, "--models", "Full", "--seed", "1"]) == 2
    assert "other settings" in capsys.readouterr().err


def test_the_table_has_the_paper_s_rows_and_the_full_likelihood() -> None:
    labels = ["Full", "Sep(4)", "Sep(10)", "Mix(4)", "Mix(10)", "Out(24)", "Out(90)"]
    assert list(MODELS)[:7] == labels and {MODELS[label].scale for label in labels} == {1000.0}
    full = [model for model in MODELS.values() if model.scale is None]
    assert full and all(model.label.endswith(", full likelihood") for model in full)


@pytest.mark.slow
def test_real_images(data_dir: Path) -> None:
    if not (data_dir / "cifar10").is_dir():
        pytest.skip(f"no CIFAR-10 in {data_dir}")
    images = load_images(data_dir / "cifar10", rows=2000)
    assert images.X.shape == (2000, 3072) and images.X_test.shape == (10_000, 3072)
    # The first images are a frog, two trucks, a deer; the test set has 1,000 of each class, the first a cat.
    assert images.y[:4].tolist() == [6, 9, 9, 4] and images.y_test[0] == 3
    assert np.bincount(images.y_test).tolist() == [1000] * 10
    assert np.abs(images.X.std(axis=0) - 1).max() < 1e-4
