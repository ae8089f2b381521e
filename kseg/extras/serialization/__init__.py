"""Keys and values decoded: deserializers, the wire format of schema registries, and the schemas that it needs."""
