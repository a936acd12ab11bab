"""Counts test targets in a Bazel build event file (--build_event_json_file) and names those that failed.

Prints "PASSED FAILED SKIPPED", then one line per failure. A target that did not build is a failure; one that this machine
cannot build (no CUDA toolkit, say) is skipped. A target counts once, however many shards and attempts it has.

    .ci/count_tests.py FILE BAZEL_EXIT_STATUS
"""

import json
import sys

_NO_TESTS_FOUND = 4


def count(lines, exit_status):
    """Returns (passed labels, {failed label: why}, skipped labels)."""
    passed, failed, skipped = set(), {}, set()
    for line in lines:
        event = json.loads(line)
        name = next(iter(event["id"]))
        label = event["id"][name].get("label")
        if name == "testSummary":
            status = event["testSummary"]["overallStatus"]
            if status == "PASSED":
                passed.add(label)
            else:
                failed[label] = status
        elif name == "targetCompleted" and not event.get("completed", {}).get("success"):
            reason = event.get("aborted", {}).get("reason", "FAILED_TO_BUILD")
            if reason == "SKIPPED":
                skipped.add(label)
            else:
                failed.setdefault(label, reason)
    if exit_status == _NO_TESTS_FOUND:
        failed["(the whole run)"] = "no test was found"
    elif exit_status != 0 and not failed:
        failed["(the whole run)"] = f"Bazel's exit status is {exit_status}"
    elif exit_status == 0 and not passed:
        failed["(the whole run)"] = "nothing ran"
    return passed - failed.keys(), failed, skipped


def main(path, exit_status):
    try:
        with open(path, encoding="utf-8") as lines:
            passed, failed, skipped = count(lines, int(exit_status))
    except OSError:
        passed, failed, skipped = (), {"(the whole run)": f"Bazel did not start; its exit status is {exit_status}"}, ()
    print(len(passed), len(failed), len(skipped))
    for label, why in sorted(failed.items()):
        print(f"{label}: {why}")


if __name__ == "__main__":
    main(*sys.argv[1:])
