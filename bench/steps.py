"""A step of each optimiser over the parameters of ResNet-18, against the faster of torch's two fused forms, in turns."""
import statistics
import time

ROUNDS = 25


def lines():
    import torch
    import workloads
    from dcml import optim
    torch.manual_seed(0)
    shapes = [p.shape for p in workloads.resnet18(1)[0].parameters()]
    cases = {"Adam": {}, "AdamW": {}, "SGD, momentum": {"momentum": 0.9}}

    def start(make, **options):
        params = [torch.nn.Parameter(torch.randn(s)) for s in shapes]
        for p in params:
            p.grad = torch.randn_like(p)
        return make(params, lr=1e-3, **options)

    out = []
    for title, options in cases.items():
        name = title.split(",")[0]
        all_ = [start(getattr(optim, name), **options),
                *(start(getattr(torch.optim, name), **options, **{how: True}) for how in ("foreach", "fused"))]
        times = [[] for _ in all_]
        for _ in range(ROUNDS):
            for optimizer, seconds in zip(all_, times):
                begin = time.perf_counter()
                optimizer.step()
                seconds.append(time.perf_counter() - begin)
        ours, *theirs = [(statistics.median(t[2:]), min(t[2:])) for t in times]
        title = name + " step, ResNet-18" + title[len(name):]
        out.append(f"{title:<56} {ours[0] / min(theirs)[0]:.2f} of torch: {1e3 * ours[0]:.2f} against {1e3 * min(theirs)[0]:.2f} ms; "
                   f"minima {ours[1] / min(t for _, t in theirs):.2f}")
    return out


if __name__ == "__main__":
    print("\n".join(lines()))
