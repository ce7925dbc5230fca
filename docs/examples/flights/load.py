"""Loads the flights into PostgreSQL as new objects: ids from Cadastre, half of them through each region.

    python load.py [--rows N] [--batch N]

From the environment: DATABASE_URL, CADASTRE_TOKEN (a service's), CADASTRE_NAMESPACE (default: flights), and
CADASTRE_AGENTS, such as `eu=http://127.0.0.1:7410,us=http://127.0.0.1:7420`.

Whatever gets lost on the way (an answer with ids, the answer to a COMMIT, an agent, this very process) may be
done again: each flight is inserted under its own key, so a second try inserts nothing.
"""

import argparse
import os
import pathlib
import threading
import time

import psycopg

import flights
from cadastre_ids import Ids

COLUMNS = ["id", "flight_key", "region", *flights.TEXTS, *flights.NUMBERS]
INSERT = (
    f"INSERT INTO flights ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
    " ON CONFLICT (flight_key) DO NOTHING"
)
ID_OF = "SELECT id FROM flights WHERE flight_key = %s"
# For how long the database may be away.
PATIENCE_SECONDS = 120.0


class Loader:
    """Loads flights through one region, on a thread of its own."""

    def __init__(self, region, agent_url):
        namespace = os.environ.get("CADASTRE_NAMESPACE", "flights")
        self.region = region
        self.ids = Ids(agent_url, os.environ["CADASTRE_TOKEN"], namespace)
        self.database = None
        self.rows = 0
        self.again = 0

    def load(self, its_flights, batch):
        """A flight that was cancelled comes singly, as news would; all others in batches, as history does."""
        part = []
        for flight in its_flights:
            if flight["dep_time"] is None:
                self.insert_one(flight)
                continue
            part.append(flight)
            if len(part) == batch:
                self.insert_many(part)
                part = []
        if part:
            self.insert_many(part)

    def insert_many(self, part):
        """A batch of ids for a batch of rows: one call and one transaction, however many there are."""

        def work():
            # Taken anew at every try: those of a try that failed are gaps, which cost nothing. And before the
            # transaction: waiting for ids must not keep one open.
            ids = self.ids.many(len(part))
            with self.connected().transaction(), self.database.cursor() as cursor:
                cursor.executemany(INSERT, [self.row(*pair) for pair in zip(ids, part)])

        self.until_done(work)
        self.rows += len(part)

    def insert_one(self, flight):
        """One id for one row; returns the id that counts, which an earlier try may have brought in."""

        def work():
            id = self.ids.one()
            with self.connected().transaction(), self.database.cursor() as cursor:
                cursor.execute(INSERT, self.row(id, flight))
                return cursor.execute(ID_OF, [flights.key(flight)]).fetchone()[0]

        self.rows += 1
        return self.until_done(work)

    def row(self, id, flight):
        return [id, flights.key(flight), self.region, *flights.values(flight)]

    def connected(self):
        if self.database is None or self.database.closed:
            self.database = psycopg.connect(os.environ["DATABASE_URL"])
        return self.database

    def until_done(self, work):
        """Does it again where the connection broke. Then nobody knows whether the COMMIT took effect, and nobody
        has to: the same keys insert nothing twice."""
        patience_ends = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return work()
            except psycopg.OperationalError:
                if time.monotonic() > patience_ends:
                    raise
                self.again += 1
                if self.database is not None:
                    self.database.close()
                time.sleep(0.2)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, help="only the first so many flights")
    arguments.add_argument("--batch", type=int, default=1000, help="rows in one transaction (default: 1000)")
    given = arguments.parse_args()

    agents = [agent.split("=", 1) for agent in os.environ["CADASTRE_AGENTS"].split(",")]
    loaders = [Loader(region, url) for region, url in agents]
    with psycopg.connect(os.environ["DATABASE_URL"]) as database:
        database.execute((pathlib.Path(__file__).parent / "schema.sql").read_text())

    began = time.monotonic()
    everything = list(flights.read(given.rows))
    failures = []

    def run(number):
        try:
            # Every second flight to the one region, the others to the other: each flight has one home.
            loaders[number].load(everything[number :: len(loaders)], given.batch)
        except Exception as failure:
            failures.append(f"{loaders[number].region}: {failure}")

    threads = [threading.Thread(target=run, args=[number]) for number in range(len(loaders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for it in loaders:
        print(
            f"{it.region}: {it.rows} flights; {it.ids.lost} answers with ids lost, {it.ids.waited} refusals waited"
            f" out, {it.again} transactions done again"
        )
    if failures:
        raise SystemExit("\n".join(failures))
    print(f"{len(everything)} flights in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
