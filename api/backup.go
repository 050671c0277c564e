package api

// TypeTar is the media type of a backup.
const TypeTar = "application/x-tar"

// Operations on the whole store, for an admin of the default tenant.
var (
	BackupTake = define[Nothing, []byte]("backup.take", "POST /v1/backup", ScopeAdmin,
		"copy the whole store while it is in use", gives(TypeTar),
		doc("The response is a tar file with a copy of the store at one moment, and a manifest as its last file. It holds the data of all tenants, so it needs an admin of the default tenant. Only SQLite and file stores can do this: see docs/operations.md."))
)
