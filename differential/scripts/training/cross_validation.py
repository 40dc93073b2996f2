"""k-fold cross-validation by Subset."""

# methods: fork
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(3)
dataset = TensorDataset(torch.randn(12, 2), torch.arange(12))
order = torch.randperm(12).tolist()
for fold in range(3):
    held_out = order[fold * 4 : fold * 4 + 4]
    rest = [i for i in order if i not in held_out]
    train = DataLoader(Subset(dataset, rest), batch_size=3, shuffle=True, num_workers=2)
    valid = DataLoader(Subset(dataset, held_out), batch_size=4, num_workers=1)
    print(fold, [y.tolist() for _, y in train], [y.tolist() for _, y in valid], sum(x.sum().item() for x, _ in train))
