-- PostgreSQL alone: SQLite adds no constraint to a table. Import writes its tables, and checks lists.
SELECT 1;
