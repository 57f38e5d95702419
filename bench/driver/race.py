# SPDX-License-Identifier: Apache-2.0
"""One race: contenders that live side by side, asked for the same points in turns."""

import time

from contenders import Failed


def run(group, points, rounds, who, ask, label, limit=None):
    """Yields (contender, point, answer). `who(contender, point)`: whether it takes part; `ask(contender, point, turn)`: its answer, or None where
    it does not do this: then, and after a failure, it is not asked for this point again. `limit`: after so many seconds no point is measured but those of the first round. Ends all contenders, whatever happens."""
    refused, until = set(), None if limit is None else time.monotonic() + limit
    try:
        for turn in range(rounds):
            began = time.monotonic()
            if turn > 0 and until and began > until:
                return
            for index, point in enumerate(points):
                if turn > 0 and until and time.monotonic() > until:
                    break
                # Another contender begins each time: none always inherits the same neighbour's caches.
                first = (turn + index) % len(group)
                for c in group[first:] + group[:first]:
                    if (c.name, index) in refused or c.failures >= 3 or not who(c, point):
                        continue
                    asked_at = time.monotonic()
                    try:
                        answer = ask(c, point, turn)
                    except Failed as problem:
                        print(f"bench: {problem}")
                        c.failures += 1
                        refused.add((c.name, index))
                        if c.failures == 3:
                            print(f"bench: {c.name} with {c.ranks} ranks failed three times: left out from here on")
                        continue
                    finally:
                        c.seconds += time.monotonic() - asked_at
                    if answer is None:
                        refused.add((c.name, index))
                    else:
                        yield c, point, answer
            print(f"bench: {label}, round {turn + 1} of {rounds}: {time.monotonic() - began:.0f} s", flush=True)
    finally:
        print("bench: seconds each took: " + ", ".join(f"{c.name} {c.seconds:.0f}" for c in group), flush=True)
        for c in group:
            c.end()
