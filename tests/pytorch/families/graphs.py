"""Networks on graphs and sets."""
import torch
import torch.nn.functional as F
from family import both, family, normal
from torch import nn

NODES = 7


def graph(n, g):
    """n graphs in one: features of nodes, edges as pairs of nodes, the graph of each node."""
    edges = torch.randint(0, NODES, (2, n, 12), generator=g) + NODES * torch.arange(n)[None, :, None]
    return torch.randn(n * NODES, 5, generator=g), edges.flatten(1), torch.arange(n).repeat_interleave(NODES)


def per_graph(x, member, count):
    total = torch.zeros(count, x.shape[1], dtype=x.dtype).index_add_(0, member, x)
    return total / torch.bincount(member, minlength=count).clamp(min=1).unsqueeze(1)


class GCNLayer(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.linear, self.bias = nn.Linear(inside, outside, bias=False), nn.Parameter(torch.zeros(outside))

    def forward(self, x, edges):
        loops = torch.arange(x.shape[0])
        source, target = torch.cat([edges, torch.stack([loops, loops])], 1)
        degree = torch.zeros(x.shape[0], dtype=x.dtype).scatter_add_(0, target, torch.ones(target.shape[0], dtype=x.dtype))
        scale = degree.pow(-0.5)
        x = self.linear(x)
        sent = x[source] * (scale[source] * scale[target]).unsqueeze(1)
        return torch.zeros_like(x).index_add(0, target, sent) + self.bias


@family(graph)
class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = GCNLayer(5, 8), GCNLayer(8, 8), nn.Linear(8, 3)

    def forward(self, x, edges, member):
        x = F.relu(self.first(x, edges))
        x = self.second(x, edges)
        return self.head(per_graph(x, member, x.shape[0] // NODES))


class GATLayer(nn.Module):
    def __init__(self, inside, outside, heads):
        super().__init__()
        self.heads, self.linear = heads, nn.Linear(inside, heads * outside, bias=False)
        self.source, self.target = nn.Parameter(torch.randn(heads, outside) * 0.3), nn.Parameter(torch.randn(heads, outside) * 0.3)

    def forward(self, x, edges):
        source, target = edges
        x = self.linear(x).unflatten(1, (self.heads, -1))
        scores = F.leaky_relu((x * self.source).sum(-1)[source] + (x * self.target).sum(-1)[target], 0.2)
        place = target.unsqueeze(1).expand_as(scores)
        most = torch.full((x.shape[0], self.heads), float("-inf"), dtype=x.dtype).scatter_reduce(0, place, scores, "amax", include_self=True)
        weights = torch.exp(scores - most.detach()[target])
        total = torch.zeros(x.shape[0], self.heads, dtype=x.dtype).scatter_add_(0, place, weights)
        weights = weights / (total[target] + 1e-16)
        return torch.zeros_like(x).index_add_(0, target, x[source] * weights.unsqueeze(-1)).flatten(1)


@family(graph)
class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GATLayer(5, 4, 2), GATLayer(8, 3, 1)

    def forward(self, x, edges, member):
        return F.log_softmax(self.second(F.elu(self.first(x, edges)), edges), 1)


class SAGELayer(nn.Module):
    def __init__(self, inside, outside, how):
        super().__init__()
        self.own, self.near, self.how = nn.Linear(inside, outside), nn.Linear(inside, outside, bias=False), how

    def forward(self, x, edges):
        place = edges[1].unsqueeze(1).expand(-1, x.shape[1])
        near = torch.zeros_like(x).scatter_reduce(0, place, x[edges[0]], self.how, include_self=False)
        return F.normalize(self.own(x) + self.near(near), dim=-1)


@family(graph)
class GraphSAGE(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGELayer(5, 8, "mean"), SAGELayer(8, 4, "amax")

    def forward(self, x, edges, member):
        return self.second(F.relu(self.first(x, edges)), edges)


@family(graph)
class GIN(nn.Module):
    """Isomorphism network: sums of neighbours, batch norm, sums over graphs."""
    def __init__(self):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(2))
        self.mlps = nn.ModuleList([nn.Sequential(nn.Linear(n, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8)) for n in (5, 8)])

    def forward(self, x, edges, member):
        for eps, mlp in zip(self.eps, self.mlps):
            x = mlp((1 + eps) * x + torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]]))
        total = torch.zeros(x.shape[0] // NODES, 8, dtype=x.dtype)
        return total.scatter_add_(0, member[:, None].expand(-1, 8), x)


@family(normal(12, 3))
class PointNet(nn.Module):
    """Points turned by a matrix that is learned, features of each, the largest of all."""
    def __init__(self):
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU())
        self.matrix, self.points = nn.Linear(8, 9), nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 16, 1))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = x.transpose(2, 1)
        turn = self.matrix(torch.max(self.turn(x), 2, keepdim=True)[0].view(-1, 8)).view(-1, 3, 3) + torch.eye(3).repeat(x.shape[0], 1, 1)
        x = torch.bmm(x.transpose(2, 1), turn).transpose(2, 1)
        apart = torch.linalg.matrix_norm(torch.eye(3)[None] - torch.bmm(turn, turn.transpose(2, 1))).mean()
        return F.log_softmax(self.head(self.points(x).max(2)[0]), -1), apart


@family(both(normal(6, 4), lambda n, g: (torch.arange(6) < torch.randint(1, 7, (n, 1), generator=g),)))
class DeepSets(nn.Module):
    """Sets of several sizes, padded."""
    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8))
        self.all = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x, is_there):
        return self.all((self.each(x) * is_there.unsqueeze(-1)).sum(1) / is_there.sum(1, keepdim=True))
