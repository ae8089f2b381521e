"""Archives, and the rooms without which the core works: schemas, SQL, views and pages."""
