"""Makes docs/pictures/sine.png: bands of f and intervals of y of README's regression. Run it from the repository."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import patrac_native as pn

rng = np.random.default_rng(0)
X = rng.uniform(-5, 5, (100, 1))
y = np.sin(X[:, 0]) + rng.normal(size=100)
net = pn.train([1, 50, 50, 1], X, y, likelihood=pn.Gaussian(1.0), seed=0)
post = pn.Posterior(net, pn.Mix(5), pn.TraceClassPrior.fit(net), pn.Gaussian(1.0), X, y)
draws = pn.sample(post, chains=4, draws=1000, thin=20, seed=1)
grid = np.linspace(-5, 5, 200)[:, None]

figure = Figure(figsize=(7.6, 3.6), layout="constrained")
ax = figure.subplots()
lower, upper = draws.interval(grid, 0.95)
ax.fill_between(grid[:, 0], lower[:, 0], upper[:, 0], color="#56B4E9", alpha=0.2, linewidth=0, label="95% of new y")
f = draws.predict(grid)
pn.plots.posterior_bands(grid, f, truth=np.sin(grid), data=(X, y), map_fit=net.predict(grid), n_draws=20, ax=ax)
figure.savefig(Path(__file__).with_name("sine.png"), dpi=72, metadata={"Software": None})
