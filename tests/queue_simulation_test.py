#!/usr/bin/env python3
"""The queue's packing on a virtual clock: python3 tests/queue_simulation_test.py PLIMSOLL"""
import json
import subprocess
import sys
import unittest

from command_run import ROOT, CommandTest, output


def simulated(folder, name):
    """The outcomes of a workload of bench/queue_workloads.py by policy."""
    made = subprocess.run([sys.executable, str(ROOT / "bench/queue_workloads.py"), name], capture_output=True, check=True)
    path = folder / f"{name}.json"
    path.write_bytes(made.stdout)
    answer = json.loads(output("queue", "simulate", path, "--json"))
    return {one["policy"]: one for one in answer["policies"]}


class Workloads(CommandTest):
    needs_run = False

    def test_sixty_jobs_at_once_and_arriving_are_over_sooner_than_with_scripts_and_nothing_crashes(self):
        for name in ("a", "b"):
            by = simulated(self.folder, name)
            self.assertEqual(by["this queue"]["crashes"], 0)
            self.assertGreater(by["free-memory polling"]["crashes"], 0)
            for other in ("free-memory polling", "one job per device"):
                self.assertLess(by["this queue"]["makespan_seconds"], by[other]["makespan_seconds"], name)

    def test_a_thousand_small_jobs_take_at_most_195_minutes_without_a_crash(self):
        by = simulated(self.folder, "c")
        queue = by["this queue"]
        self.assertLessEqual(queue["makespan_seconds"], 195 * 60)
        self.assertEqual((queue["crashes"], queue["lost_jobs"]), (0, 0))
        self.assertLessEqual(queue["most_reserved_bytes"], 0.95 * 40_000 * 2**20)
        self.assertGreater(by["free-memory polling"]["crashes"], 0)

    def test_jobs_have_a_plan_for_each_unlike_card(self):
        devices = [{"bytes": "24GiB", "model": "large"}, {"bytes": "12GiB", "model": "small"}]
        jobs = [{"seconds": 100, "bytes": "20GiB", "card": "large", "plans": [{"bytes": "10GiB", "seconds": 150, "card": "small"}]}] * 3
        path = self.folder / "unlike.json"
        path.write_text(json.dumps({"machine": {"devices": devices}, "jobs": jobs}))
        packed = json.loads(output("queue", "simulate", path, "--json"))["policies"][0]
        # One on each card; the third waits for the large one, where it ends before it would on the small one.
        self.assertEqual((packed["makespan_seconds"], packed["most_at_once"], packed["crashes"]), (200, 2, 0))
        path.write_text(json.dumps({"machine": {"devices": devices[1:]}, "jobs": [{**jobs[0], "plans": []}]}))
        self.assertIn("fits never: it needs 1 device (large), the queue has 0", output("queue", "simulate", path, code=2))

    def test_jobs_take_smaller_plans_where_that_ends_all_sooner(self):
        def makespan(plans):
            job = {"devices": 0, "bytes": "6GiB", "seconds": 1000, "threads": 2, "plans": plans}
            path = self.folder / "plans.json"
            path.write_text(json.dumps({"machine": {"devices": [], "host_bytes": "10GiB", "threads": 4},
                                        "jobs": [job, job, {**job, "plans": []}]}))
            return json.loads(output("queue", "simulate", path, "--json"))["policies"][0]["makespan_seconds"]
        self.assertEqual(makespan([]), 3000)
        self.assertEqual(makespan([{"bytes": "5GiB", "seconds": 1100}]), 2100)
        self.assertEqual(makespan([{"bytes": "5GiB", "seconds": 2001}]), 3000, "not worth it")
        path = self.folder / "bad.json"
        path.write_text('{"machine": {"devices": []}, "jobs": [{"devices": 0, "seconds": 1, "plans": [{"bytes": 1}]}]}')
        self.assertIn("plan: 'seconds'", output("queue", "simulate", path, code=2))

    def test_with_wrong_estimates_and_leaks_at_most_one_job_in_a_hundred_crashes_and_none_is_lost(self):
        queue = simulated(self.folder, "d")["this queue"]
        self.assertLessEqual(queue["crashed_jobs"], 10)
        self.assertLessEqual(queue["crashes"], 10)
        self.assertEqual(queue["lost_jobs"], 0)
        self.assertGreater(simulated(self.folder, "d0")["this queue"]["crashes"], 10, "the margin is what does it")

    def test_a_job_that_fits_only_into_the_headroom_is_refused(self):
        path = self.folder / "w.json"
        path.write_text(json.dumps({"machine": {"headroom": 0.1, "devices": [{"bytes": 100}]},
                                    "jobs": [{"seconds": 1, "bytes": 95}]}))
        self.assertIn("job 1 fits never: it needs 95 B", output("queue", "simulate", path, code=2))
        self.assertIn("cannot be opened", output("queue", "simulate", self.folder / "none.json", code=2))


class Help(CommandTest):
    needs_run = False

    def test_commands_of_the_queue_have_manuals_and_are_completed(self):
        self.assertIn("plimsoll queue simulate WORKLOAD", output("queue", "simulate", "--help"))
        self.assertIn("did you mean 'simulate'", output("queue", "simulat", code=2))
        self.assertIn("queue simulate: there is no option '--jsn' (did you mean '--json'?)",
                      output("queue", "simulate", "x", "--jsn", code=2))
        for shell in ("bash", "zsh", "fish"):
            self.assertIn("simulate", output("completion", shell))


if __name__ == "__main__":
    unittest.main()
