"""Draws in the forms that other libraries take: modules of torch, and the groups of ArviZ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy.typing as npt

from patrac_native.draws import arviz_groups
from patrac_native.draws.arviz_restore import attributes, library_attributes
from patrac_native.draws.chain_draws import ChainDraws
from patrac_native.draws.left_out import LeaveOneOutPredictions
from patrac_native.interop.datatree import Group, Named, build_datatree, inference_data
from patrac_native.likelihoods import Likelihood
from patrac_native.posterior.describe import overview
from patrac_native.posterior.partial_network import PartialNetwork
from patrac_native.validation.checks import FloatArray, check_count, check_seed
from patrac_native.validation.columns import column_names

if TYPE_CHECKING:
    import arviz
    import torch
    import xarray


class DrawsBridges(ChainDraws, LeaveOneOutPredictions):
    """Base class of `Draws` with what other libraries take.

    Attributes
    ----------
    network : PartialNetwork
    likelihood : Likelihood
    """

    network: PartialNetwork
    likelihood: Likelihood

    def _overview(self) -> list[tuple[str, str]]:
        """Return labels and values of the table for notebooks."""
        return [*overview(self.network, self.likelihood), *super()._overview()]

    def to_torch(self, chain: int, draw: int, *, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """Return the network of one draw as a torch module, whose outputs are f.

        Parameters
        ----------
        chain, draw : int
            Which draw; negative numbers count from the end.
        dtype : torch.dtype, optional
            Of the parameters; by default that of theta.

        Returns
        -------
        torch.nn.Module
            An `nn.Sequential` of Linear layers and activations with the nodes in the trained network's own order, as
            `net.to_torch()` returns it. For Sep, a module that adds the separate network to the trained one.

        Raises
        ------
        IndexError
            If there is no such draw.
        """
        from patrac_native.posterior.torch_modules import torch_module

        if not (-self.n_chains <= chain < self.n_chains and -self.n_draws <= draw < self.n_draws):
            raise IndexError(
                f"there are {self.n_chains} chains of {self.n_draws} draws; got chain={chain}, draw={draw}."
            )
        return cast("torch.nn.Module", torch_module(self.network, self.theta[chain, draw], dtype))

    def torch_parameters(self, *, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
        """Return the parameters of the modules of all draws, for `torch.func.functional_call` under `torch.vmap`.

        Parameters
        ----------
        dtype : torch.dtype, optional
            As for `to_torch`.

        Returns
        -------
        dict of str to tensor, shape (chain * draw, ...)
            By the names of the parameters of `to_torch(0, 0)`, chain by chain. Parameters without a Bayesian entry are
            views of one copy.

        Raises
        ------
        ValueError
            If there are no draws.

        Examples
        --------
        >>> import numpy as np
        >>> import torch
        >>> import patrac_native as pn
        >>> net = pn.Network([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
        >>> X = np.linspace(-1, 1, 5)[:, None]
        >>> post = pn.Posterior(net, pn.Mix(1), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
        >>> draws = pn.sample(post, chains=2, draws=3, warmup=100, seed=0)
        >>> module, inputs = draws.to_torch(0, 0), torch.tensor(X, dtype=torch.float32)
        >>> call = lambda parameters: torch.func.functional_call(module, parameters, (inputs,))
        >>> torch.vmap(call)(draws.torch_parameters()).shape
        torch.Size([6, 5, 1])
        """
        from patrac_native.posterior.torch_modules import torch_parameters

        self._require_draws()
        return torch_parameters(self.network, self._flat_theta(), dtype)

    def to_datatree(
        self,
        X: npt.ArrayLike | None = None,
        y: npt.ArrayLike | None = None,
        *,
        offset: npt.ArrayLike | None = None,
        input_names: Sequence[object] | None = None,
        target_names: Sequence[object] | None = None,
        prior_draws: int = 500,
        seed: int = 0,
    ) -> xarray.DataTree:
        """Return the draws as an xarray DataTree for ArviZ; see docs/bridges/arviz.md.

        Its groups are, with t targets, m outputs and n rows:

        - posterior: theta as one variable for each matrix and vector, without gaps: "weights_1" (chain, draw, input,
          hidden_1), "biases_1" (chain, draw, hidden_1), "weights_2" (chain, draw, hidden_1, hidden_2) and so on, up to
          the "output" of the last layer. Only nodes with Bayesian parameters are part of them, in the order of their
          ranks; their labels are the trained network's own indices (of `Sep`, those of the separate network). Where the
          masks of `Custom` are no blocks of nodes, weights are vectors with labels "node that is read, node that
          reads". Sampled noise variances are "variance", and sampled variances of the prior "prior_scales".
        - sample_stats: `stats`, where "total_log_likelihood" is the log-likelihood of all rows, and "lp" its sum with
          log_prior.
        - prior: draws of the same variables from the prior, in one chain.
        - constant_data: "hidden_1_rank" and its like, the ranks of nodes, counted from 0; with X, X and offset.
        - with X, posterior_predictive: "y" with noise, as `predictive` draws it; prior_predictive: y; and function, a
          name of this package: "f", which `predict` returns, or "p", the probabilities of classes or of ones.
        - with y, observed_data: y; log_likelihood: y, one value for each row, the sum over its targets. It has no
          sample weights; `loo` takes them into account.

        A single target has no axis; several have the axis "target". The attributes of the root are versions, seed and
        every setting.

        Parameters
        ----------
        X : array_like, shape (n, d), optional
            Finite inputs; those of the posterior if log-likelihoods are to serve leave-one-out predictions.
        y : array_like, optional
            Their targets, as the likelihood describes them.
        offset : array_like, shape (n,) or (n, m), optional
            As for `predict`.
        input_names : sequence of d str, optional
            Labels of the inputs; by default the columns of the data frame on which the network was trained or that the
            posterior was given, those of X, or indices.
        target_names : sequence of str, optional
            Labels of the t targets or, for `Categorical`, of the m classes; by default indices.
        prior_draws : int
            Number of draws from the prior; 0 leaves the groups of the prior out. Default 500.
        seed : int
            0 <= seed < 2^64, for the noise, as in `predictive`, and for the prior, as in `Posterior.sample_prior`;
            default 0.

        Returns
        -------
        xarray.DataTree
            The arrays of n rows take 8 to 24 bytes for each row, target and draw. Parameters share memory with `theta`
            where possible: copy the tree before changing it.

        Raises
        ------
        ImportError
            If xarray is not installed (extra "arviz").
        TypeError, ValueError
            If an argument is not as described, y or offset is given without X, or there are no draws.

        Warns
        -----
        UserWarning
            If y is given without `offset`, though the posterior has one.

        Examples
        --------
        >>> import numpy as np
        >>> import patrac_native as pn
        >>> net = pn.Network([[[1.0, 0.5], [2.0, 0.0]], [[1.0, 1.0]]], [[0.0, 0.5], [0.0]])
        >>> X = np.linspace(-1, 1, 10).reshape(5, 2)
        >>> post = pn.Posterior(net, pn.Mix(1), pn.TraceClassPrior(1.5, 1.0, 1.0), pn.Gaussian(1.0), X, X[:, 0])
        >>> draws = pn.sample(post, chains=2, draws=50, warmup=100, seed=0)
        >>> tree = draws.to_datatree(X, post.y, input_names=["height", "width"])
        >>> dict(tree["posterior"]["weights_1"].sizes)
        {'chain': 2, 'draw': 50, 'input': 2, 'hidden_1': 1}
        >>> tree["posterior"]["weights_1"].sel(hidden_1=1, input="width").shape
        (2, 50)
        """
        self._require_draws()
        check_seed(seed)
        check_count(prior_draws, "prior_draws", least=0)
        for name, value in (("y", y), ("offset", offset)):
            if X is None and value is not None:
                raise ValueError(f"{name} must be left out without X: give both, such as post.X and post.{name}.")
        if input_names is None:
            input_names = self.network.input_names or column_names(X)
        inputs = None if X is None else self._inputs(X)
        if inputs is not None and y is not None:
            offset = self._offset_of_targets(offset, len(inputs))
        added = None if inputs is None else self.likelihood.check_offset(offset, len(inputs), self.n_outputs)
        labels = arviz_groups.make_labels(self.network, self.likelihood, input_names, target_names)
        groups = {
            "posterior": arviz_groups.posterior_group(
                self.network, labels, self.theta, arviz_groups.sampled_parameters(self.stats)
            ),
            "sample_stats": arviz_groups.sample_stats_group(self.stats),
        }
        places = None if added is None else arviz_groups.target_values(added, self.likelihood, labels)
        groups["constant_data"] = arviz_groups.constant_group(self.network, labels, inputs, places)
        if inputs is not None:
            groups |= self._data_groups(labels, inputs, y, added, seed)
        if prior_draws:
            groups |= arviz_groups.prior_groups(
                self.network, self.likelihood, labels, inputs, added, draws=prior_draws, seed=seed
            )
        root = attributes(self.network, self.likelihood, self.settings, self.sampler)
        return build_datatree(groups, root, library_attributes(), "to_datatree")

    def _data_groups(
        self,
        labels: arviz_groups.Labels,
        X: FloatArray,
        y: npt.ArrayLike | None,
        offset: FloatArray | None,
        seed: int,
    ) -> dict[str, Group]:
        """Return the groups that need inputs (n, d), and those that need targets too unless y is None."""
        likelihood, n = self.likelihood, len(X)
        rows = arviz_groups.row_coordinates(n, labels)
        by_draw = arviz_groups.chain_coordinates(self.theta.shape[:2]) | rows

        def targets(values: npt.NDArray[Any]) -> Named:
            return arviz_groups.target_values(values, likelihood, labels)

        predictive = Group({"y": targets(self.predictive(X, offset=offset, seed=seed))}, dict(by_draw))
        # A group of its own: plots of posterior_predictive expect no axis that observed_data lacks, as that of classes.
        function = Group(coordinates=dict(by_draw))
        if likelihood.targets == "class":
            function.variables["p"] = (*arviz_groups.CHAIN_DRAW, "row", "output"), self.predict_proba(X)
            function.coordinates["output"] = ("output",), labels.outputs
        elif likelihood.targets == "binary":
            function.variables["p"] = targets(self.predict_proba(X))
        else:
            function.variables["f"] = targets(self.predict(X, offset=offset))
        groups = {"posterior_predictive": predictive, "function": function}
        if y is not None:
            observed = likelihood.check_targets(y, n, self.n_outputs)
            groups["observed_data"] = Group({"y": targets(observed)}, rows)
            values = self.log_likelihood_rows(X, observed, offset=offset)
            own = {name: at for name, at in by_draw.items() if name != "target"}
            groups["log_likelihood"] = Group({"y": ((*arviz_groups.CHAIN_DRAW, "row"), values)}, own)
        return groups

    def to_inferencedata(
        self,
        X: npt.ArrayLike | None = None,
        y: npt.ArrayLike | None = None,
        *,
        offset: npt.ArrayLike | None = None,
        input_names: Sequence[object] | None = None,
        target_names: Sequence[object] | None = None,
        prior_draws: int = 500,
        seed: int = 0,
    ) -> arviz.InferenceData:
        """Return the draws as the InferenceData of ArviZ 0.x, with the groups of `to_datatree`.

        Parameters
        ----------
        X, y, offset, input_names, target_names, prior_draws, seed
            As for `to_datatree`.

        Returns
        -------
        arviz.InferenceData
            Its method `to_datatree` gives the tree for `Draws.from_datatree`.

        Raises
        ------
        ImportError
            If ArviZ is not installed, or its version is 1.0 or later, which takes the DataTree.
        TypeError, ValueError
            As `to_datatree`.

        Warns
        -----
        UserWarning
            As `to_datatree`.
        """
        if X is not None and y is not None:
            offset = self._offset_of_targets(offset, len(self._inputs(X)))
        tree = self.to_datatree(
            X,
            y,
            offset=offset,
            input_names=input_names,
            target_names=target_names,
            prior_draws=prior_draws,
            seed=seed,
        )
        return inference_data(tree, "to_inferencedata")
