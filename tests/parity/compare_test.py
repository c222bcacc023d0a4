"""The comparisons fail where they should: run before any parity result is believed."""
import unittest

import numpy

from tests.parity.compare import compare_bf16, compare_fp32, compare_losses


def dump(**changes):
    generator = numpy.random.default_rng(1)
    tensors = {"logits": generator.normal(size=(7, 11)), "grad.a": generator.normal(size=(5, 3))}
    return {**tensors, **changes}


def noisy(tensors, size):
    generator = numpy.random.default_rng(2)
    return {name: value + size * generator.normal(size=value.shape) for name, value in tensors.items()}


class Compare(unittest.TestCase):
    def test_equal_dumps_pass(self):
        self.assertEqual(compare_fp32(dump(), dump()), ([], 0.0))

    def test_one_wrong_value_fails(self):
        wrong = dump()
        wrong["grad.a"] = wrong["grad.a"].copy()
        wrong["grad.a"][2, 1] += 1e-3
        self.assertIn("grad.a", compare_fp32(wrong, dump())[0][0])

    def test_nan_missing_tensors_and_shapes_fail(self):
        self.assertTrue(compare_fp32(dump(logits=numpy.full((7, 11), numpy.nan)), dump())[0])
        self.assertTrue(compare_fp32(dump(extra=numpy.ones(1)), dump())[0])
        self.assertTrue(compare_fp32({"logits": dump()["logits"]}, dump())[0])
        self.assertTrue(compare_fp32(dump(logits=numpy.ones((7, 12))), dump())[0])

    def test_bf16_is_measured_by_the_reference_own_error(self):
        theirs = noisy(dump(), 1e-2)
        self.assertEqual(compare_bf16(noisy(dump(), 1e-2), theirs, dump())[0], [])
        self.assertEqual(len(compare_bf16(noisy(dump(), 1.2e-2), theirs, dump())[0]), 2)
        self.assertTrue(compare_bf16(dump(logits=numpy.full((7, 11), numpy.nan)), theirs, dump())[0])

    def test_losses_are_compared_step_by_step(self):
        self.assertEqual(compare_losses([2.0, 1.0], [2.0, 1.0])[0], [])
        self.assertIn("step 1", compare_losses([2.0, 1.001], [2.0, 1.0])[0][0])
        self.assertTrue(compare_losses([2.0], [2.0, 1.0])[0])
        self.assertTrue(compare_losses([2.0, float("nan")], [2.0, 1.0])[0])

    def test_few_steps_are_held_to_less_than_many(self):
        for steps, limit, off in ((10, None, 6e-5), (10, 1e-5, 2e-5), (30, None, 2e-4)):
            self.assertTrue(compare_losses([1.0 + off] * steps, [1.0] * steps, limit)[0])
            self.assertFalse(compare_losses([1.0 + off / 3] * steps, [1.0] * steps, limit)[0])


if __name__ == "__main__":
    unittest.main()
