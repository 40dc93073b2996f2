"""PyTorch Geometric, one big graph: NodeLoader with a sampler in plain Python (its own ones need compiled extensions)."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler import BaseSampler, SamplerOutput
from torch_geometric.utils import subgraph


class RandomNeighbours(BaseSampler):
    """The nodes asked for, and a random half of their neighbours."""

    def __init__(self, edge_index: torch.Tensor, nodes: int) -> None:
        self.edge_index, self.nodes = edge_index, nodes

    def sample_from_nodes(self, index, **options) -> SamplerOutput:
        seeds = index.node
        near = self.edge_index[0, torch.isin(self.edge_index[1], seeds)].unique()
        near = near[~torch.isin(near, seeds)]
        near = near[torch.rand(len(near)) < 0.5]
        node = torch.cat([seeds, near])
        (row, col), _ = subgraph(node, self.edge_index, num_nodes=self.nodes)
        place = torch.full((self.nodes,), -1)
        place[node] = torch.arange(len(node))
        return SamplerOutput(node, place[row], place[col], edge=None, metadata=(index.input_id, index.time))

    def sample_from_edges(self, index, **options) -> SamplerOutput:
        raise NotImplementedError


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(4, 8), SAGEConv(8, 2)

    def forward(self, graph):
        return self.second(self.first(graph.x, graph.edge_index).relu(), graph.edge_index)


def main() -> None:
    seed_everything(7)
    graph = Data(x=torch.randn(96, 4), edge_index=torch.randint(96, (2, 600)), y=torch.arange(96) % 2)
    sampler = RandomNeighbours(graph.edge_index, 96)
    train = NodeLoader(graph, sampler, input_nodes=torch.arange(64), batch_size=8, shuffle=True, num_workers=2)
    valid = NodeLoader(
        graph,
        sampler,
        input_nodes=torch.arange(64, 96),
        batch_size=8,
        num_workers=2,
        persistent_workers=True,
        filter_per_worker=True,
    )
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(2):
        for part in train:
            optimizer.zero_grad()
            loss = cross_entropy(network(part)[: part.batch_size], part.y[: part.batch_size])
            loss.backward()
            optimizer.step()
            print("loss train", loss.item().hex(), flush=True)
        for part in valid:
            with torch.no_grad():
                loss = cross_entropy(network(part)[: part.batch_size], part.y[: part.batch_size])
            print("loss valid", loss.item().hex(), flush=True)


if __name__ == "__main__":
    main()
