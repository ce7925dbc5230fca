"""Checks what load.py has loaded; ends with 1 if anything is wrong.

    python check.py [--rows N] [--sample N]

From the environment: DATABASE_URL, CADASTRE_NAMESPACE (default: flights), CADASTRE_AUTHORITY_URL, and
CADASTRE_VIEWER_TOKEN (a viewer's or an operator's).
"""

import argparse
import bisect
import collections
import json
import os
import random
import urllib.request

import psycopg

import flights

AUTHORITY = os.environ["CADASTRE_AUTHORITY_URL"].rstrip("/")
NAMESPACE = os.environ.get("CADASTRE_NAMESPACE", "flights")
wrong = []


def say(good, text):
    print(f"{'ok   ' if good else 'WRONG'} {text}")
    if not good:
        wrong.append(text)


def get(path):
    headers = {"Authorization": f"Bearer {os.environ['CADASTRE_VIEWER_TOKEN']}"}
    with urllib.request.urlopen(urllib.request.Request(AUTHORITY + path, headers=headers), timeout=30) as answer:
        return json.load(answer)


def grants():
    """The authority's ledger: (first id, last id, region) of every grant, in order."""
    # Grants are ranges of ordinals: 0, 1, 2 ... The namespace's definition says which id each one stands for.
    versions = get(f"/v1/namespaces/{NAMESPACE}")["definition"]["versions"]
    assert len(versions) == 1, "this example knows namespaces whose definition was never changed"
    start, increment = (int(versions[0]["sequence"][name]) for name in ("start", "increment"))
    assert increment > 0, "and ids that rise"
    found, after = [], ""
    while True:
        page = get(f"/v1/grants?namespace={NAMESPACE}{after}")
        for grant in page["grants"]:
            lo, hi = int(grant["lo"]), int(grant["hi"])
            found.append((start + lo * increment, start + (hi - 1) * increment, grant["region"]))
        if page["next"] is None:
            return sorted(found)
        after = f"&after={page['next']}"


def check_rows(rows, most):
    loaded, expected = collections.Counter(key for _, key, _ in rows), [flights.key(it) for it in flights.read(most)]
    missing, alien = set(expected) - set(loaded), set(loaded) - set(expected)
    say(not missing and not alien, f"every flight is there ({len(missing)} of {len(expected)} missing, {len(alien)} alien)")
    say(len(rows) == len(expected) == len(loaded), f"and once: {len(rows)} rows, {len(loaded)} keys")
    ids = [id for id, _, _ in rows]
    say(len(set(ids)) == len(ids), f"ids are unique: {len(set(ids))}")
    say(min(ids) > 0, f"and positive: {min(ids)} to {max(ids)}")


def check_grants(rows):
    ledger = grants()
    firsts = [first for first, _, _ in ledger]
    astray, by_region = 0, collections.Counter()
    for id, _, region in rows:
        place = bisect.bisect_right(firsts, id) - 1
        if place < 0 or id > ledger[place][1] or region != ledger[place][2]:
            astray += 1
        by_region[region] += 1
    counts = ", ".join(f"{region} {count}" for region, count in sorted(by_region.items()))
    say(not astray, f"every id lies in a grant of its row's region ({counts}; {len(ledger)} grants, {astray} astray)")
    halves = max(by_region.values()) - min(by_region.values())
    say(len(by_region) > 1 and halves <= 1, "each region had its share")


def check_origins(rows, sample):
    """The same question as an application would ask it, id by id."""
    astray = []
    for id, _, region in random.sample(rows, min(sample, len(rows))):
        origin = get(f"/v1/origins/{NAMESPACE}/{id}")
        if origin["region"] != region or origin["id"] != str(id):
            astray.append(id)
    say(not astray, f"the origin of {min(sample, len(rows))} ids names the right region (not of: {astray[:10]})")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, help="so many flights were loaded (default: all)")
    arguments.add_argument("--sample", type=int, default=300, help="ids whose origin is looked up (default: 300)")
    given = arguments.parse_args()
    with psycopg.connect(os.environ["DATABASE_URL"]) as database:
        rows = database.execute("SELECT id, flight_key, region FROM flights").fetchall()
    if not rows:
        raise SystemExit("the table is empty: run load.py first")
    check_rows(rows, given.rows)
    check_grants(rows)
    check_origins(rows, given.sample)
    if wrong:
        raise SystemExit(f"{len(wrong)} wrong")


if __name__ == "__main__":
    main()
