"""How far two dumps are apart. A dump is {name: numpy array}: "logits" and "grad.NAME"."""
import numpy

FP32_LIMIT = 1e-4    # largest difference over the largest value of a tensor
LOSS_LIMIT = 1e-4    # of every step, of thirty
SHORT_LIMIT = 4e-5   # of ten: differences have had fewer steps to grow in
BF16_FACTOR = 1.1    # our distance from fp32 over that of transformers in bf16


def same_names(ours, theirs):
    """Messages for tensors that only one side has, or whose shapes differ."""
    for name in sorted(ours.keys() ^ theirs.keys()):
        yield f"{name}: only in {'ours' if name in ours else 'the reference'}"
    for name in sorted(ours.keys() & theirs.keys()):
        if ours[name].shape != theirs[name].shape:
            yield f"{name}: shape {ours[name].shape}, expected {theirs[name].shape}"


def relative_error(ours, reference):
    """Largest difference over the largest value; NaN counts as infinitely far."""
    scale = numpy.abs(reference).max()
    error = numpy.abs(ours - reference).max() / scale if scale else numpy.abs(ours).max()
    return float(error) if numpy.isfinite(error) else float("inf")


def compare_fp32(ours, theirs):
    """(messages, worst relative error)."""
    messages = list(same_names(ours, theirs))
    if messages:
        return messages, float("inf")
    errors = {name: relative_error(ours[name], theirs[name]) for name in theirs}
    messages = [f"{name}: relative error {error:.2e}, above {FP32_LIMIT:.0e}"
                for name, error in errors.items() if error > FP32_LIMIT]
    return messages, max(errors.values())


def without_key_biases(dump):
    """Without the gradients that are zero but for rounding: the bias of a key moves all scores of a query alike. One that
    is not is kept."""
    def is_zero(name):
        weight = name.removesuffix("bias") + "weight"
        return name.endswith("attention.self.key.bias") and abs(dump[name]).max() < 1e-5 * abs(dump[weight]).max()
    return {name: tensor for name, tensor in dump.items() if not is_zero(name)}


def distance(dump, reference, names):
    """Root mean square over tensors of each one's relative distance: no tensor drowns in a larger one.

    Single small tensors are not compared: which of two roundings of a few values is nearer to fp32 is chance.
    """
    parts = [numpy.linalg.norm(dump[name] - reference[name]) / numpy.linalg.norm(reference[name]) for name in names]
    return float(numpy.sqrt(numpy.mean(numpy.square(parts))))


def compare_bf16(ours, theirs, reference, factor=BF16_FACTOR):
    """(messages, worst ratio) for logits and for all gradients together."""
    messages = list(same_names(ours, reference))
    if messages:
        return messages, float("inf")
    ratios = {}
    for what, names in (("logits", ["logits"]), ("gradients", [n for n in reference if n.startswith("grad.")])):
        ratios[what] = distance(ours, reference, names) / distance(theirs, reference, names)
    messages = [f"{what}: {ratio:.2f} times as far from fp32 as transformers' bf16, above {factor}"
                for what, ratio in ratios.items() if not ratio <= factor]
    return messages, max(ratios.values())


def compare_losses(ours, theirs, limit=None):
    """(messages, worst relative difference) of two lists of step losses; `limit`: None is that of their number."""
    limit = limit or (LOSS_LIMIT if len(theirs) > 10 else SHORT_LIMIT)
    if len(ours) != len(theirs):
        return [f"{len(ours)} steps, expected {len(theirs)}"], float("inf")
    errors = [abs(a - b) / abs(b) for a, b in zip(ours, theirs)]
    messages = [f"step {step}: loss {ours[step]:.6f}, expected {theirs[step]:.6f}"
                for step, error in enumerate(errors) if not error <= limit]
    return messages[:1], max(errors)
