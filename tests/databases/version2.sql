BEGIN TRANSACTION;
CREATE TABLE compilers (
        id INTEGER PRIMARY KEY,
        project TEXT NOT NULL,
        mlir TEXT NOT NULL,
        llvm TEXT NOT NULL,
        code TEXT NOT NULL,
        UNIQUE (project, mlir, llvm, code));
INSERT INTO "compilers" VALUES(1,'0.1.0','22.1.8.4','22.1.8.2','266da9c94a2d');
CREATE TABLE environments (
        id INTEGER PRIMARY KEY,
        versions TEXT NOT NULL UNIQUE);
INSERT INTO "environments" VALUES(1,'{"driver":"580.159.04","python":"3.12.3"}');
CREATE TABLE gpus (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        capability TEXT NOT NULL,
        UNIQUE (name, capability));
INSERT INTO "gpus" VALUES(1,'NVIDIA H200','9.0');
CREATE TABLE measurements (
        id INTEGER PRIMARY KEY,
        trial INTEGER NOT NULL REFERENCES trials ON DELETE CASCADE,
        environment INTEGER NOT NULL REFERENCES environments,
        digest TEXT NOT NULL,
        measured_at TEXT NOT NULL,
        outcome TEXT NOT NULL,
        why TEXT NOT NULL,
        identity TEXT NOT NULL,
        samples_us TEXT NOT NULL,
        verification TEXT,
        resources TEXT,
        seconds TEXT NOT NULL,
        UNIQUE (trial, digest));
INSERT INTO "measurements" VALUES(1,1,1,'4a8c1be3f04ac753','2026-11-30T12:00:00.000000+00:00','ok','','0000000000000001','[2.0,2.5,2.25]','{"components":70,"passed":true,"worst":1e-07,"wrong":0}',NULL,'{"compile":0.125}');
INSERT INTO "measurements" VALUES(2,2,1,'06e2a1ef466987ce','2026-11-30T12:00:00.000000+00:00','ok','','0000000000000002','[3.0,3.5,3.25]','{"components":70,"passed":true,"worst":1e-07,"wrong":0}',NULL,'{"compile":0.125}');
CREATE TABLE operators (
        id INTEGER PRIMARY KEY,
        kernel TEXT NOT NULL,
        encoding TEXT NOT NULL,
        dtypes TEXT NOT NULL,
        computation TEXT NOT NULL,
        UNIQUE (kernel, encoding));
INSERT INTO "operators" VALUES(1,'f094510c174c','','float32','');
CREATE TABLE plans (
        id INTEGER PRIMARY KEY,
        digest TEXT NOT NULL UNIQUE,
        kernel TEXT NOT NULL,
        steps TEXT NOT NULL);
INSERT INTO "plans" VALUES(1,'655aa9fe0d7b','f094510c174c','set-encoding{format=csr positions=32 coordinates=32 block-rows=4 block-columns=4}
accumulate-registers
rows-to-threads
map-blocks{threads=128}');
INSERT INTO "plans" VALUES(2,'077e6f6a9c30','f094510c174c','set-encoding{format=csr positions=32 coordinates=32 block-rows=4 block-columns=4}
accumulate-registers
rows-to-threads
map-blocks{threads=256}');
CREATE TABLE structures (
        id INTEGER PRIMARY KEY,
        pattern TEXT NOT NULL UNIQUE,
        rows INTEGER NOT NULL CHECK (rows >= 0),
        columns INTEGER NOT NULL CHECK (columns >= 0),
        entries INTEGER NOT NULL CHECK (entries >= 0),
        features TEXT);
INSERT INTO "structures" VALUES(1,'5d41402abc4b2a76b9719d911017c592',70,50,350,'{"rows":70,"columns":50,"entries":350,"mean_row":5.0}');
CREATE TABLE tasks (
        id INTEGER PRIMARY KEY,
        structure INTEGER NOT NULL REFERENCES structures,
        operator INTEGER NOT NULL REFERENCES operators,
        K TEXT NOT NULL,
        chip TEXT NOT NULL,
        gpu INTEGER NOT NULL REFERENCES gpus,
        compiler INTEGER NOT NULL REFERENCES compilers,
        caches TEXT NOT NULL, about TEXT NOT NULL DEFAULT '{}',
        UNIQUE (structure, operator, K, chip, gpu, compiler, caches));
INSERT INTO "tasks" VALUES(1,1,1,'','sm_90',1,1,'warm','{}');
CREATE TABLE trials (
        id INTEGER PRIMARY KEY,
        task INTEGER NOT NULL REFERENCES tasks ON DELETE CASCADE,
        plan INTEGER NOT NULL REFERENCES plans,
        outcome TEXT NOT NULL,
        verified INTEGER NOT NULL CHECK (verified IN (0, 1)),
        us REAL CHECK (us >= 0),
        iqr_us REAL,
        samples INTEGER NOT NULL,
        UNIQUE (task, plan));
INSERT INTO "trials" VALUES(1,1,1,'ok',1,2.25,0.25,3);
INSERT INTO "trials" VALUES(2,1,2,'ok',1,3.25,0.25,3);
CREATE INDEX tasks_by_operator ON tasks (operator, gpu);
CREATE INDEX trials_by_time ON trials (task, verified, us);
CREATE INDEX trials_by_plan ON trials (plan);
CREATE INDEX measurements_by_time ON measurements (measured_at);
CREATE INDEX measurements_by_environment ON measurements (environment);
COMMIT;
