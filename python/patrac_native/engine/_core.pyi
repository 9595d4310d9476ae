"""Types of the compiled core."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

COMPILER: str
FLAGS: str
CUDA: str
XLA_INTERFACE: tuple[int, int]

T = TypeVar("T", np.float32, np.float64)
_Float64 = npt.NDArray[np.float64]
_Report = Callable[[int, int, float], None]
_IsEnough = Callable[[dict[str, Any]], bool]

def simd_levels() -> list[str]: ...
def default_simd_level() -> str: ...

class Purpose:
    """What a noise stream is drawn for."""

    proposal: Purpose
    acceptance: Purpose
    init: Purpose
    prior: Purpose
    def __init__(self, value: int) -> None: ...

def standard_normals32(
    *, seed: int, chain: int, step: int, purpose: Purpose, steps: int, count: int, level: str
) -> npt.NDArray[Any]: ...

standard_normals64 = standard_normals32

def activations() -> list[str]: ...
def likelihoods() -> list[str]: ...
def kernels() -> list[str]: ...

class ModelSpec:
    """What a model is compiled from: network, Bayesian parameters, likelihood."""

    def __init__(
        self,
        *,
        activation: str,
        weights: Sequence[_Float64],
        biases: Sequence[_Float64],
        weight_masks: Sequence[npt.NDArray[np.bool_]],
        bias_masks: Sequence[npt.NDArray[np.bool_]],
        companion: tuple[Sequence[_Float64], Sequence[_Float64]] | None,
        likelihood: str,
        likelihood_parameters: Mapping[str, _Float64],
    ) -> None: ...

class Phase:
    def __init__(
        self,
        *,
        steps: int,
        adapt: bool,
        accept_low: float,
        accept_high: float,
        accept_all: bool,
        energy_error: float,
        persistence: float,
        travel: float,
        average: bool,
        target: float,
        first_look: int,
        superchains: int,
    ) -> None: ...

class SampledVariance:
    def __init__(self, *, shape: float, rate: _Float64, initial: _Float64, every: int) -> None: ...

class SampledScales:
    def __init__(
        self,
        *,
        group: npt.NDArray[np.int32],
        groups: int,
        shape: float,
        rate: float,
        every: int,
        interweave: bool,
    ) -> None: ...

class RunConfig:
    def __init__(
        self,
        *,
        kernel: str,
        collapse: bool,
        coarse_gradient: bool = False,
        persistence: float,
        variance: SampledVariance | None,
        scales: SampledScales | None,
        step_size: float,
        step_size_max: float,
        warmup: Sequence[Phase],
        sampling: Phase,
        draws: int,
        thin: int,
        seed: int,
        threads: int,
        check_every: int = 0,
        last_step: int = ...,
        states: Sequence[bytes] = ...,
    ) -> None: ...

class _Model(Generic[T]):
    """Model32 or Model64: a plan with its packed data."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        inputs: npt.NDArray[T] | npt.NDArray[np.uint8],
        targets: _Float64,
        row_weights: _Float64,
        level: str,
        in_place: bool,
    ) -> None: ...
    @property
    def dim(self) -> int: ...
    @property
    def tile_rows(self) -> int: ...
    @property
    def cached_bytes(self) -> int: ...
    @property
    def level(self) -> str: ...
    @property
    def layers(self) -> list[dict[str, int]]: ...
    def log_likelihood(self, theta: npt.NDArray[T], threads: int, variance: _Float64 | None = None) -> _Float64: ...
    def log_likelihood_and_grad(
        self, theta: npt.NDArray[T], threads: int, variance: _Float64 | None = None
    ) -> tuple[_Float64, npt.NDArray[T]]: ...
    def predict(self, theta: npt.NDArray[T], inputs: npt.NDArray[T], threads: int) -> npt.NDArray[T]: ...
    def log_acceptance(
        self,
        from_theta: npt.NDArray[T],
        to_theta: npt.NDArray[T],
        prior_variance: _Float64,
        kernel: str,
        step_size: float,
        collapse: bool = False,
        step_factor: _Float64 | None = None,
    ) -> float: ...
    @property
    def hidden_entries(self) -> npt.NDArray[np.int64]: ...
    def collapsed(
        self, theta: npt.NDArray[T], prior_variance: _Float64, with_gradient: bool
    ) -> tuple[_Float64, npt.NDArray[T]]: ...
    def sample(
        self,
        config: RunConfig,
        init: npt.NDArray[T],
        prior_variance: _Float64,
        progress: _Report | None,
        is_enough: _IsEnough | None = None,
        step_factor: _Float64 | None = None,
        rotation: Sequence[tuple[int, _Float64, _Float64]] = (),
    ) -> dict[str, Any]: ...

class Model32(_Model[np.float32]): ...
class Model64(_Model[np.float64]): ...

class _Descent(Generic[T]):
    """Descent32 or Descent64: networks that Adam trains on all rows, in step."""

    def __init__(
        self,
        *,
        trained: Sequence[_Model[T]],
        unseen: Sequence[_Model[T]],
        theta: npt.NDArray[T],
        l2: float,
        learning_rate: float,
    ) -> None: ...
    def run(self, epochs: int, *, at_once: int, threads: int) -> tuple[_Float64, npt.NDArray[T], _Float64]: ...

class Descent32(_Descent[np.float32]): ...
class Descent64(_Descent[np.float64]): ...

def adam_update32(
    *,
    theta: npt.NDArray[np.float32],
    mean: npt.NDArray[np.float32],
    square: npt.NDArray[np.float32],
    gradient: npt.NDArray[np.float32],
    update: int,
    learning_rate: float,
) -> None: ...
def adam_update64(
    *, theta: _Float64, mean: _Float64, square: _Float64, gradient: _Float64, update: int, learning_rate: float
) -> None: ...

class _Density(Generic[T]):
    """Density32 or Density64: a model's log density in the coordinates of another library."""

    def __init__(
        self,
        model: _Model[T],
        *,
        kind: str,
        whitened: bool,
        log_variance: bool,
        prior_variance: _Float64,
        variance: _Float64,
        reference: float,
        terms: float,
        shape: float,
        rate: _Float64,
    ) -> None: ...
    @property
    def dim(self) -> int: ...
    @property
    def is_collapsed(self) -> bool: ...
    @property
    def full_dim(self) -> int: ...
    def complete(self, points: npt.NDArray[T], normals: npt.NDArray[T], threads: int) -> npt.NDArray[T]: ...
    def value(self, points: npt.NDArray[T], threads: int, variance: _Float64 | None = None) -> _Float64: ...
    def value_and_grad(
        self, points: npt.NDArray[T], threads: int, variance: _Float64 | None = None
    ) -> tuple[_Float64, npt.NDArray[T]]: ...
    def publish(self) -> int: ...
    @staticmethod
    def withdraw(number: int) -> None: ...
    @staticmethod
    def xla_handler(with_gradient: bool) -> Any: ...
    @staticmethod
    def xla_instantiate() -> Any: ...
    def c_context(self, threads: int) -> Any: ...

def c_function() -> Any: ...
def c_batched() -> Any: ...
def xla_state() -> dict[str, Any]: ...

class Density32(_Density[np.float32]): ...
class Density64(_Density[np.float64]): ...

def sample_quadratic32(
    *,
    constant: _Float64,
    slope: _Float64,
    matrix: _Float64,
    to_theta: _Float64,
    terms: float,
    variance: _Float64,
    output: npt.NDArray[np.int32],
    config: RunConfig,
    init: npt.NDArray[Any],
    prior_variance: _Float64,
    progress: _Report | None,
    is_enough: _IsEnough | None = None,
    level: str,
) -> dict[str, Any]: ...

sample_quadratic64 = sample_quadratic32

def evaluate_foreign(
    *, function: Callable[..., Any] | int, context: int, batched: bool, theta: _Float64
) -> tuple[_Float64, _Float64]: ...
def sample_foreign(
    *,
    function: Callable[..., Any] | int,
    context: int,
    batched: bool,
    config: RunConfig,
    init: _Float64,
    prior_variance: _Float64,
    progress: _Report | None,
    is_enough: _IsEnough | None = None,
    level: str,
) -> dict[str, Any]: ...
def device_status(device: str) -> dict[str, Any]: ...
def device_normals32(
    *, device: str, seed: int, chain: int, step: int, purpose: Purpose, count: int
) -> npt.NDArray[Any]: ...

device_normals64 = device_normals32

class DeviceTensor:
    """Draws (chains, draws, K) in a device's memory."""

    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def strides(self) -> tuple[int, int, int]: ...
    @property
    def element_bytes(self) -> int: ...
    @property
    def place(self) -> tuple[int, int]: ...
    @property
    def pointer(self) -> int: ...
    def part(self, first_chain: int, chains: int, draws: int) -> DeviceTensor: ...
    def fetch(self) -> npt.NDArray[Any]: ...
    def dlpack(self, versioned: bool) -> Any: ...

MAX_DEVICE_LAYERS: int
ALL_STREAMS: int

class DeviceInputs:
    """Inputs in a device's memory: another library's, or a copy of them."""

    @staticmethod
    def from_dlpack(device: str, capsule: Any, copy: bool, stream: int = 0) -> DeviceInputs: ...
    @staticmethod
    def from_pointer(
        *,
        device: str,
        owner: object,
        pointer: int,
        kind: str,
        shape: tuple[int, int],
        strides: tuple[int, int],
        itemsize: int,
        copy: bool,
        stream: int = 0,
    ) -> DeviceInputs: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def place(self) -> tuple[int, int]: ...
    def bad_entries(self, max_magnitude: float) -> int: ...
    def fetch(self) -> npt.NDArray[Any]: ...

class _DataSet(Generic[T]):
    """DataSet32 or DataSet64: a plan with its packed data, laid out for a device."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        device: str,
        inputs: npt.NDArray[Any] | DeviceInputs,
        targets: _Float64,
        row_weights: _Float64,
    ) -> None: ...

class DataSet32(_DataSet[np.float32]): ...
class DataSet64(_DataSet[np.float64]): ...

class _DeviceModel(Generic[T]):
    """DeviceModel32 or DeviceModel64: data sets of one plan in a device's memory."""

    def __init__(self, device: str, data_sets: Sequence[_DataSet[T]]) -> None: ...
    @property
    def bytes(self) -> int: ...
    def layout(self, persists: bool, chains: int = 1) -> dict[str, Any]: ...
    def log_likelihood(self, theta: npt.NDArray[T]) -> _Float64: ...
    def log_likelihood_and_grad(
        self, theta: npt.NDArray[T], *, coarse: bool = False
    ) -> tuple[_Float64, npt.NDArray[T]]: ...
    def sample(
        self,
        config: RunConfig,
        seeds: Sequence[int],
        init: npt.NDArray[T],
        prior_variance: _Float64,
        progress: _Report | None,
        keep_on_device: bool = False,
        step_factor: _Float64 | None = None,
    ) -> dict[str, Any]: ...

class DeviceModel32(_DeviceModel[np.float32]): ...
class DeviceModel64(_DeviceModel[np.float64]): ...

class testing:
    @staticmethod
    def levels() -> list[str]: ...
    @staticmethod
    def elementary_functions() -> list[str]: ...
    @staticmethod
    def elementary(name: str, x: npt.NDArray[T], level: str) -> npt.NDArray[T]: ...
    @staticmethod
    def repeat_operation(name: str, dtype: str, repeats: int, level: str) -> int: ...
    @staticmethod
    def emulated_barriers() -> int: ...
    @staticmethod
    def philox(counter: Sequence[int], key: Sequence[int], level: str) -> list[int]: ...
    @staticmethod
    def stream_key(seed: int, chain: int, level: str) -> list[int]: ...
    @staticmethod
    def cholesky(a: _Float64, level: str) -> tuple[float, _Float64, _Float64, _Float64]: ...
