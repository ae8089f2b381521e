"""Everything that is written for people and programs: a writer for each verb and format."""
