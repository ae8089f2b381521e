"""Archives, and the rooms without which the core works: schemas, requests, SQL, views and pages."""
