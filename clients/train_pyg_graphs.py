"""PyTorch Geometric, many small graphs: its DataLoader joins them, transforms shake them in the workers."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric import seed_everything
from torch_geometric.data import Data, Dataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.transforms import Compose, RandomFlip, RandomJitter


class Rings(Dataset):
    """Rings of five to nine nodes; the label is whether their number is even."""

    def __init__(self, count: int, *, seed: int, transform=None) -> None:
        super().__init__(transform=transform)
        self.count, self.seed = count, seed

    def len(self) -> int:
        return self.count

    def get(self, idx: int) -> Data:
        generator = torch.Generator().manual_seed(self.seed * 1000 + idx)
        nodes = 5 + idx % 5
        here = torch.arange(nodes)
        edges = torch.stack([here, (here + 1) % nodes])
        return Data(
            x=torch.randn(nodes, 4, generator=generator),
            pos=torch.rand(nodes, 2, generator=generator),
            edge_index=torch.cat([edges, edges.flip(0)], 1),
            y=nodes % 2,
            name=f"ring {idx}",
        )


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(6, 8), GCNConv(8, 2)

    def forward(self, graphs):
        x = self.first(torch.cat([graphs.x, graphs.pos], 1), graphs.edge_index).relu()
        return global_mean_pool(self.second(x, graphs.edge_index), graphs.batch)


def main() -> None:
    seed_everything(7)
    shake = Compose([RandomFlip(axis=0), RandomJitter(0.05)])
    train = DataLoader(Rings(64, seed=1, transform=shake), batch_size=8, shuffle=True, num_workers=2)
    valid = DataLoader(Rings(32, seed=2), batch_size=8, num_workers=2, persistent_workers=True, follow_batch=["pos"])
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(2):
        network.train()
        for graphs in train:
            optimizer.zero_grad()
            loss = cross_entropy(network(graphs), graphs.y)
            loss.backward()
            optimizer.step()
            print("loss train", loss.item().hex(), flush=True)
        network.eval()
        for graphs in valid:
            with torch.no_grad():
                loss = cross_entropy(network(graphs), graphs.y)
            print("loss valid", loss.item().hex(), flush=True)


if __name__ == "__main__":
    main()
