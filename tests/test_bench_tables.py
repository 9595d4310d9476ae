"""bench/quality/tables.py: its rows and inputs, losses on one scale, paired comparisons, and a run that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from scripts import process

FOLDER = Path(__file__).resolve().parents[1] / "bench" / "quality"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the modules of the folder be imported, which is no package."""
    monkeypatch.syspath_prepend(str(FOLDER))


def write_table(data: Path, name: str, **columns: object) -> pd.DataFrame:
    frame = pd.DataFrame(columns)
    frame.to_csv(data / f"{name}.csv.gz", index=False)
    return frame


def test_test_rows_and_targets_are_those_that_the_data_name(tmp_path: Path) -> None:
    from table_rows import load_table

    n = 23
    times = np.arange(1.0, n + 1)
    columns = {"age": np.arange(n), "rtime": times, "recur": times, "dtime": times, "death": np.arange(n) % 2}
    frame = write_table(tmp_path, "rotterdam", **columns)
    rows = load_table(tmp_path, "rotterdam")
    is_test = np.random.default_rng(0).permutation(n) < n // 5
    assert rows.y_test.tolist() == np.log(frame.dtime[is_test]).tolist() and len(rows.y) == n - n // 5
    assert rows.event.tolist() == frame.death[~is_test].tolist()
    assert list(rows.X) == ["age"]  # relapse is an outcome
    part = rows.parted(3)
    assert sorted([*part.X.age, *part.X_test.age]) == sorted(rows.X.age) and len(part.held.y) == len(rows.y) // 5
    with pytest.raises(FileNotFoundError, match="--data"):
        load_table(tmp_path, "auto_mpg")


def test_inputs_of_rivals() -> None:
    from table_rows import TableRows, as_numbers

    X = pd.DataFrame({"a": [1.0, np.nan, 3.0, 8.0], "b": ["x", None, "y", "x"], "same": 1})
    other = pd.DataFrame({"a": [np.nan, 5.0], "b": ["new", "y"], "same": 2})
    ones = np.ones(4)
    found, test = as_numbers(TableRows("", "real", X, ones, ones, other, ones[:2], ones[:2]))
    # a and whether it is missing; b as missing, x and y; a constant column is left out.
    assert found.shape == (4, 5) and np.allclose(found.mean(axis=0), 0) and np.allclose(found.std(axis=0), 1)
    assert test[0, 0] == pytest.approx((3.0 - 3.75) / np.std([1, 3, 3, 8]))  # the median of the training rows
    assert (test[0, 2:] < 0).all() and test[1, 4] > 0  # an unknown category is none of them


def test_losses_of_counts_and_of_censored_times() -> None:
    from forecasts import Classes, Counts, Normals, dispersion_of
    from table_rows import TableRows
    from table_sides import losses_of

    empty, y, mean, sd = pd.DataFrame(), np.array([0.0, 4.0]), np.array([[1.0, 5.0]]), np.array([[2.0, 1.0]])

    def rows(kind: str, event: list[float]) -> TableRows:
        return TableRows("", kind, empty, y, y, empty, y, np.array(event))

    found = losses_of(rows("count", [1, 1]), Normals(mean, sd))
    normal = stats.norm(mean[0], sd[0])
    probability = [normal.cdf(0.5)[0], (normal.cdf(4.5) - normal.cdf(3.5))[1]]
    assert found == pytest.approx(-np.log(probability), rel=1e-12)
    found = losses_of(rows("censored", [1, 0]), Normals(mean, sd))
    assert found == pytest.approx([-normal.logpdf(0.0)[0], -normal.logsf(4.0)[1]], rel=1e-12)
    counts = Counts.negative_binomial(mean[0], 0.5, 200)
    assert losses_of(rows("count", [1, 1]), counts) == pytest.approx(
        -stats.nbinom.logpmf(y, 2, 2 / (2 + mean[0])), rel=1e-12
    )
    assert counts.quantile(0.9).tolist() == stats.nbinom.ppf(0.9, 2, 2 / (2 + mean[0])).tolist()
    drawn = stats.nbinom.rvs(2, 2 / 3, size=4000, random_state=2).astype(float)
    many = Counts.negative_binomial(np.full(4000, 1.0), 0.5, 200)
    # Of a right forecast, nine tenths; the standard error is below 0.005. Intervals from 0 hold more of the 0s.
    assert many.inside(drawn, 0.9).mean() == pytest.approx(0.9, abs=0.02)
    assert (drawn <= many.quantile(0.95)).mean() > 0.95
    # E|Y - y| - E|Y - Y'| / 2 by the probabilities themselves.
    apart = np.abs(np.arange(200)[:, None] - np.arange(200))
    for row, p in enumerate(counts.probability):
        expected = p @ apart[:, int(y[row])] - p @ apart @ p / 2
        assert counts.crps(y)[row] == pytest.approx(expected, rel=1e-9)
    assert losses_of(rows("class", [1, 1]), Classes(np.full((2, 5), 0.2))) == pytest.approx(np.log([5, 5]))
    drawn = stats.nbinom.rvs(1 / 0.7, 1 / (1 + 0.7 * 6), size=20_000, random_state=1)
    assert dispersion_of(np.full(20_000, 6.0), drawn) == pytest.approx(0.7, rel=0.1)  # one step of the grid is 7%


def test_comparisons_are_paired() -> None:
    import tables

    losses = {"patrac": [1.0, 2.0, 3.0, 4.0], "linear": [1.1, 2.3, 3.1, 4.3], "gp": [1.4, 1.9, 3.5, 3.9]}
    of_table = {side: {"losses": of, "coverage": 0.9, "seconds": 1.0} for side, of in losses.items()}
    of_table["ngboost"] = {"error": tables.TOO_SLOW}
    found = tables.compared(of_table)
    assert found["patrac"] == (2.5, 0.0, 0.0)
    assert found["linear"] == pytest.approx((2.7, 0.2, np.std([0.1, 0.3, 0.1, 0.3], ddof=1) / 2))
    sides = ["patrac", "linear", "gp", "ngboost"]
    (row,) = tables.loss_rows({"auto_mpg": of_table}, sides)
    assert row == ["auto_mpg", "**2.500**", "2.700 (+0.200 ± 0.058)", "2.675 (+0.175 ± 0.160) =", "too slow"]
    of_sides = tables.totals({"auto_mpg": of_table}, sides)
    assert [cells[2:4] for cells in of_sides] == [["1 of 1"] * 2, ["0 of 1"] * 2, ["0 of 1", "1 of 1"], ["0 of 1"] * 2]
    # Coverage counts where there are over 100 test rows, of numbers; the second table has classes.
    longer = {side: {**of, "losses": [1.0] * 101, "seconds": 8.0} for side, of in of_table.items() if "losses" in of}
    found = tables.totals({"storms": longer, "taxi": longer, "auto_mpg": of_table}, sides)
    assert found[0] == ["patrac", "3", "3 of 3", "3 of 3", "1 of 1", "8"]
    assert found[3] == ["ngboost", "0", "0 of 3", "0 of 3", "0 of 0", "-"]


@pytest.mark.slow
def test_the_command_fits_every_kind_and_goes_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 150
    x, group = rng.normal(size=n), rng.choice(["a", "b"], n)
    write_table(tmp_path, "auto_mpg", mpg=x + rng.normal(size=n), x=x, group=group)
    write_table(tmp_path, "affairs", affairs=rng.poisson(np.exp(x / 2)), x=x, group=group)
    write_table(tmp_path, "scat", Species=np.where(x > 0, "cat", "dog"), x=np.where(x > 2, np.nan, x), group=group)
    write_table(tmp_path, "gbsg", rfstime=np.exp(x + rng.normal(size=n)), status=rng.integers(0, 2, n), x=x)
    out, page = tmp_path / "out.jsonl", tmp_path / "page.md"
    command = [str(FOLDER / "tables.py"), "--data", str(tmp_path), "--out", str(out)]
    command += ["--page", str(page), "--tables", "auto_mpg", "affairs", "scat", "gbsg", "--minutes", "0.005"]
    done = process(*command, "--sides", "patrac", "gp", timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in out.read_text().splitlines()]
    losses = {one["table"]: one["loss"] for one in found if one["side"] == "patrac" and len(one["losses"]) == n // 5}
    # Of predictions that know no input: the entropy of a normal of variance 2, for one.
    assert losses.keys() == {"auto_mpg", "affairs", "scat", "gbsg"} and losses["scat"] < np.log(2)
    assert losses["auto_mpg"] < 0.5 * np.log(2 * np.pi * np.e * 2)
    assert [one["side"] for one in found if "skipped" in one] == ["gp"] * 2
    assert "| auto_mpg |" in page.read_text()
    again = process(*command, "--sides", "patrac")
    assert again.returncode == 0 and len(out.read_text().splitlines()) == len(found)
