"""gpytorch and torch_geometric: a few steps of each."""

import gpytorch
import torch
from common import clock, report
from torch_geometric.nn import GCNConv

torch.manual_seed(0)
x = torch.linspace(0, 1, 200, device="cuda")
y = torch.sin(x * 6)


class GP(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, at):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(at), self.covar_module(at))


likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
model = GP(likelihood).cuda()
model.train(), likelihood.train()
loss_of = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
optimizer = torch.optim.Adam(model.parameters(), 0.1)
conv = GCNConv(64, 64).cuda()
edges = torch.stack([torch.arange(1000), (torch.arange(1000) * 7 + 1) % 1000]).cuda()
features = torch.ones(1000, 64, device="cuda")


def step():
    optimizer.zero_grad()
    loss = -loss_of(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


step(), conv(features, edges)
torch.cuda.synchronize()
begin = clock()
count = 100
for _ in range(count):
    loss = step()
    with torch.no_grad():
        features = torch.relu(conv(features, edges)) + 0.1
value = float(loss)
took = clock() - begin
report(f"{value:.1f} {torch.isfinite(features).all().item()}", count, took)
