"""Nodes of a graph, their neighbours drawn while a batch is put together: in the style of PyTorch Geometric's loaders.

https://github.com/pyg-team/pytorch_geometric/blob/master/examples/reddit.py
"""

import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

NODES, CLASSES = 400, 4


class Graph:
    def __init__(self):
        draw = np.random.default_rng(0)
        self.y = torch.arange(NODES) % CLASSES
        self.x = torch.randn(NODES, 8, generator=torch.Generator().manual_seed(0)) + 0.7 * nn.functional.one_hot(
            self.y, 8
        )
        same = [draw.choice(np.flatnonzero((self.y == self.y[node]).numpy()), 6) for node in range(NODES)]
        self.row_start = np.arange(NODES + 1) * 6
        self.column = np.concatenate(same)


class NeighborLoader(DataLoader):
    """The dataset is the nodes' numbers; all the work is in the collate function, which is a method of the loader."""

    def __init__(self, graph, num_neighbors, input_nodes, **kwargs):
        self.graph, self.num_neighbors = graph, num_neighbors
        super().__init__(input_nodes.tolist(), collate_fn=self.collate_fn, **kwargs)

    def collate_fn(self, nodes):
        graph, rows = self.graph, []
        for node in nodes:
            neighbors = graph.column[graph.row_start[node] : graph.row_start[node + 1]]
            rows.append(torch.as_tensor(np.random.choice(neighbors, self.num_neighbors, replace=False)))
        batch = copy.copy(graph)
        batch.n_id = torch.tensor(nodes)
        batch.own, batch.around = graph.x[nodes], graph.x[torch.stack(rows)].mean(1)
        batch.y, batch.x, batch.column, batch.row_start = graph.y[nodes], None, None, None
        return batch


class SAGE(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.around = nn.Linear(8, CLASSES), nn.Linear(8, CLASSES)

    def forward(self, batch):
        return self.own(batch.own) + self.around(batch.around)


def main():
    torch.manual_seed(0)
    graph = Graph()
    kwargs = {"batch_size": 32, "num_workers": 2, "persistent_workers": True}
    train = NeighborLoader(graph, 4, torch.arange(300), shuffle=True, **kwargs)
    test = NeighborLoader(graph, 6, torch.arange(300, NODES), **kwargs)
    model = SAGE()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for epoch in range(5):
        nodes = []
        for batch in train:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch), batch.y)
            loss.backward()
            optimizer.step()
            nodes += batch.n_id.tolist()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
        assert sorted(nodes) == list(range(300))
    with torch.no_grad():
        right = sum((model(batch).argmax(1) == batch.y).sum().item() for batch in test)
    assert right > 65, right
    print("OK")


if __name__ == "__main__":
    main()
