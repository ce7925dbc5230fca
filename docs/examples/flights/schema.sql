-- `id` comes from Cadastre. `flight_key` is the key that the flight has anyway (what, and when it was due): it
-- is known before the first try and the same at every retry, so it decides that a flight is one row. Where
-- your rows have no such key, make one (a UUID) before the first try and keep it with the request.
CREATE TABLE IF NOT EXISTS flights (
    id             BIGINT PRIMARY KEY,
    flight_key     TEXT NOT NULL UNIQUE,
    region         TEXT NOT NULL,
    time_hour      TIMESTAMPTZ NOT NULL,
    carrier        TEXT NOT NULL,
    flight         INTEGER NOT NULL,
    tailnum        TEXT,
    origin         TEXT NOT NULL,
    dest           TEXT NOT NULL,
    sched_dep_time INTEGER NOT NULL,
    dep_time       INTEGER,
    dep_delay      INTEGER,
    sched_arr_time INTEGER NOT NULL,
    arr_time       INTEGER,
    arr_delay      INTEGER,
    air_time       INTEGER,
    distance       INTEGER NOT NULL
);
