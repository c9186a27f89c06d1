"""Makes a release: distributions that can be built again byte for byte, bills of materials, licences and checksums."""
