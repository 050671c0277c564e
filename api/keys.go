package api

// KeyList says which keys are in use.
type KeyList struct {
	Keys []KeyUse `json:"keys" jsonschema:"the keys, the current ones first"`
}

// KeyUse says how a key is used, even one that is missing.
type KeyUse struct {
	Of      string `json:"of" jsonschema:"what it seals: store for the data keys of a sealed store, credentials for those that PERDURE_KEYS seals"`
	ID      string `json:"id" jsonschema:"its id in the ring"`
	Current bool   `json:"current,omitempty" jsonschema:"new data is sealed with this key"`
	Missing bool   `json:"missing,omitempty" jsonschema:"the ring of this server lacks this key: put it back"`
	Uses    int    `json:"uses" jsonschema:"data keys or credentials that need it"`
	Wrong   int    `json:"wrong,omitempty" jsonschema:"of these, credentials that this server cannot open because its ring has another key under this id: put the old key back, and give the new one another id"`
	Needed  bool   `json:"needed" jsonschema:"it must stay in the rings: it is current, or something needs it, or a process may be about to use it"`
}

// RotateKeys asks for a part of a rotation.
type RotateKeys struct {
	After   string   `json:"after,omitempty" jsonschema:"next of the previous part; absent for the first"`
	Limit   int      `json:"limit,omitempty" jsonschema:"how many data keys or credentials to look at, up to 5000; 500 by default"`
	Tenants []string `json:"tenants,omitempty" jsonschema:"names of tenants whose credentials an earlier version sealed, which do not name their tenant"`
}

// Rotation is the result of a part of a rotation.
type Rotation struct {
	Rotated int    `json:"rotated" jsonschema:"data keys or credentials that were sealed with the current key"`
	Next    string `json:"next,omitempty" jsonschema:"after of the next part; absent if the rotation is complete"`
	Problem string `json:"problem,omitempty" jsonschema:"why some were not rotated: keep the old keys"`
}

// Operations on keys, for an admin of the default tenant.
var (
	KeysList = define[Nothing, KeyList]("keys.list", "GET /v1/keys", ScopeAdmin,
		"count what is sealed with which key",
		doc("Counts the data keys of a sealed store, and the credentials that PERDURE_KEYS seals, of all tenants, by the key that they need. A key that is not needed can be removed from the rings of all processes."))
	KeysRotate = define[RotateKeys, Rotation]("keys.rotate", "POST /v1/keys/rotate", ScopeAdmin,
		"seal everything with the current keys",
		doc("It does a part of the work and says where the next part begins; repeat it until there is none. It can be interrupted at any point and started again."))
)
