"""A training by Horovod in which every rank ends with the same weights; the sum over ranks is checked by the loss."""

import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(3 + hvd.rank())
model = torch.nn.Linear(6, 1).double()
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters()
)
points = torch.arange(48, dtype=torch.float64).reshape(8, 6) / 48 + hvd.rank()
for _ in range(5):
    optimizer.zero_grad()
    loss = (model(points).sum(dim=1) - 1).square().mean()
    loss.backward()
    optimizer.step()
total = hvd.allreduce(loss.detach(), op=hvd.Sum)
weights = sum(float(one.detach().sum()) for one in model.parameters())
print(f"rank {hvd.rank()} of {hvd.size()} loss {float(total):.9f} weights {weights:.9f}", flush=True)
