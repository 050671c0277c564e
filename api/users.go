package api

import "github.com/perdure/perdure"

// OneUser names a user of the tenant.
type OneUser struct {
	User string `path:"user" json:"-" jsonschema:"the user"`
}

// EraseUser erases everything of a user.
type EraseUser struct {
	User   string `path:"user" json:"-" jsonschema:"the user"`
	Reason string `query:"reason" json:"-" jsonschema:"why"`
}

// Operations on users.
var (
	UsersData = define[OneUser, perdure.UserData]("users.data", "GET /v1/users/{user}", ScopeAdmin,
		"count what is stored for a user", doc("It changes nothing."))
	UsersErase = define[EraseUser, perdure.Receipt]("users.erase", "DELETE /v1/users/{user}", ScopeAdmin,
		"erase everything of a user, and give a receipt for it",
		doc("Threads with forks and children, archived threads, memory, rules, credentials, uploads, schedules, bulk jobs, and the tokens and tickets of the user are erased. It may take a long time, and can be repeated: it continues where it was cut off, and returns the same receipt if nothing is left. The receipt is signed with the store's key, and says neither who the user was nor what was erased."))
	UsersReceipt = define[OneUser, perdure.Receipt]("users.receipt", "GET /v1/users/{user}/receipt", ScopeAdmin,
		"get the receipt of an erased user", doc("The request fails as busy while the erase has not ended, and as not-found if the user was never erased."))
)
