"""Makes docs/pictures/sine.png: bands of f and intervals of y of README's regression under Mix(5) and Full.

Run it from the repository. It prints at how many inputs the band of f holds the true mean.
"""

from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import patrac_native as pn

rng = np.random.default_rng(0)
X = rng.uniform(-5, 5, (100, 1))
y = np.sin(X[:, 0]) + rng.normal(size=100)
net = pn.train([1, 50, 50, 1], X, y, likelihood=pn.Gaussian(1.0), seed=0)
grid = np.linspace(-5, 5, 200)[:, None]
truth = np.sin(grid[:, 0])

figure = Figure(figsize=(9.6, 3.7), layout="constrained")
axes = figure.subplots(1, 2, sharey=True)
for ax, architecture in zip(axes, (pn.Mix(5), pn.Full()), strict=True):
    post = pn.Posterior(net, architecture, pn.TraceClassPrior.fit(net), pn.Gaussian(1.0), X, y)
    draws = pn.sample(post, chains=4, draws=1000, thin=100, seed=1)
    f = draws.predict(grid)
    lower, upper = np.quantile(f, (0.025, 0.975), axis=(0, 1))[..., 0]
    print(f"{architecture}: truth inside at {((lower <= truth) & (truth <= upper)).mean():.0%} of the inputs")
    print(draws.summary(grid).verdict())
    pn.plots.posterior_bands(
        grid,
        f,
        truth=truth,
        data=(X, y),
        map_fit=net.predict(grid),
        y_interval=draws.interval(grid),
        n_draws=20,
        legend=False,
        ax=ax,
    )
    ax.set_title(f"{post.network.architecture.label()}, {post.dim} of {net.n_parameters} parameters")
axes[1].set_ylabel("")
handles, labels = axes[0].get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize="small")
buffer = BytesIO()
figure.savefig(buffer, dpi=72, metadata={"Software": None})
# 96 colours keep the file small, and look the same.
Image.open(buffer).convert("RGB").quantize(96).save(Path(__file__).with_name("sine.png"), optimize=True)
