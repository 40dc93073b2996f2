"""A script with argparse, whose options reach the loader."""

import argparse
import sys
from torch.utils.data import DataLoader


def parse():
    parser = argparse.ArgumentParser(description="train")
    parser.add_argument("method")
    parser.add_argument("--batch-size", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    args = parse()
    print(args, parser_name := argparse.ArgumentParser().prog, sys.argv)
    for batch in DataLoader(
        range(7), batch_size=args.batch_size, num_workers=args.workers, multiprocessing_context=args.method
    ):
        print(batch)
