"""`python -m bench [CASE ...]`: prints a table, and writes build/bench.json."""

from __future__ import annotations

import json
import os
import sys

from bench.cases import CASES, QUICK_CASES, RESULTS, Result
from bench.stand import QUICK
from tunnel.compiled import build_name


def main(names: list[str]) -> int:
    """Run the named cases, or all."""
    unknown = [name for name in names if name not in CASES]
    if unknown:
        print(f"no case {unknown[0]}; there are: {', '.join(CASES)}", file=sys.stderr)
        return 2
    # A proxy from the environment would be measured together with kas.
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        os.environ.pop(name, None)
    results: list[Result] = []
    width = 46
    print(f"txkas: {build_name()}")
    print(f"{'case':{width}} {'value':>10} {'floor':>10} {'ratio':>6} {'target':>6}")
    for name in names or (QUICK_CASES if QUICK else CASES):
        for result in CASES[name]():
            results.append(result)
            print(
                f"{result.case:{width}} {result.value:10.1f} {result.floor:10.1f} "
                f"{result.ratio:6.2f} {result.target:6.1f}  {result.unit}"
                f"{'' if result.ok else '  MISSED'}",
                flush=True,
            )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps(
            [
                {
                    "case": one.case,
                    "build": build_name(),
                    "value": one.value,
                    "unit": one.unit,
                    "floor": one.floor,
                    "ratio": one.ratio,
                    "target": one.target,
                    "ok": one.ok,
                }
                for one in results
            ],
            indent=1,
        )
        + "\n"
    )
    print(f"written to {RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
