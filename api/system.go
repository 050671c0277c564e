package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
)

// Nothing is the input of operations without one.
type Nothing struct{}

// FlowList holds the flows of a server.
type FlowList struct {
	Flows []FlowInfo `json:"flows" jsonschema:"the flows, in the order of their names"`
}

// FlowInfo is a flow.
type FlowInfo struct {
	Name  string          `json:"name" jsonschema:"its name"`
	Agent bool            `json:"agent,omitempty" jsonschema:"whether it is a turn of an agent: its input is a message, a text or a list of parts"`
	Input json.RawMessage `json:"input,omitempty" jsonschema:"the JSON Schema of its input, if it follows from its Go type"`
}

// WorkerList holds the live workers.
type WorkerList struct {
	Workers []perdure.WorkerInfo `json:"workers" jsonschema:"the workers"`
}

// Stats holds counts of a tenant's threads.
type Stats struct {
	Threads  int            `json:"threads" jsonschema:"number of threads"`
	Statuses map[string]int `json:"statuses" jsonschema:"number of threads by status; idle means without a run, moved that they continue in another store"`
	Asks     int            `json:"asks" jsonschema:"open asks"`
	Workers  int            `json:"workers" jsonschema:"workers that are alive"`
	Streams  int            `json:"streams" jsonschema:"open event streams of this server"`
	Uptime   int64          `json:"uptime" jsonschema:"seconds since this server started"`
	Version  string         `json:"version" jsonschema:"of this server"`

	// Durability is the class of store.Durability.
	Durability string `json:"durability" jsonschema:"what acknowledged writes survive: none, process (the death of a process) or power (a power failure)" schema:"enum=none|process|power"`

	// Warnings are those of store.Warnings.
	Warnings []store.Warning `json:"warnings,omitempty" jsonschema:"problems of the store's engine that an operator should fix, although it works; for admins of the default tenant"`
}

// Identity is the caller that a token identifies.
type Identity struct {
	Tenant  string    `json:"tenant" jsonschema:"whose threads it reaches"`
	Subject string    `json:"subject" jsonschema:"in whose name it acts"`
	User    string    `json:"user,omitempty" jsonschema:"the user whose threads and memory it is limited to; absent means all of the tenant's"`
	Groups  []string  `json:"groups,omitempty" jsonschema:"groups that the subject belongs to"`
	Scopes  []Scope   `json:"scopes" jsonschema:"what it allows"`
	Expires time.Time `json:"expires,omitzero" jsonschema:"when it expires"`
}

// Me describes the caller of a request.
type Me struct {
	Identity
	Login   bool `json:"login" jsonschema:"whether callers must identify themselves: with a token or a session or, on your own machine, by the connection"`
	Session bool `json:"session" jsonschema:"whether the request was made with the cookie of a session"`
}

// CreateSession logs a browser in.
type CreateSession struct {
	Token string `json:"token" jsonschema:"the token that the session stands for"`
}

// CreateToken creates a token.
type CreateToken struct {
	Subject string   `json:"subject,omitempty" jsonschema:"in whose name it acts; the user by default"`
	User    string   `json:"user,omitempty" jsonschema:"limits the token to the threads and memory of this user, for use in a browser; its scopes are then read and run by default"`
	Tenant  string   `json:"tenant,omitempty" jsonschema:"whose threads it reaches; the caller's own tenant by default. A server with authentication creates none for another tenant"`
	Groups  []string `json:"groups,omitempty" jsonschema:"groups that the subject belongs to"`
	Scopes  []Scope  `json:"scopes,omitempty" jsonschema:"read, run, answer, admin; read, run and answer by default"`
	Days    *int     `json:"days,omitempty" jsonschema:"days until it expires; by default it does not expire"`
	Minutes *int     `json:"minutes,omitempty" jsonschema:"minutes until it expires, in place of days"`
	Note    string   `json:"note,omitempty" jsonschema:"what it is for"`
}

// Token describes a token without its secret.
type Token struct {
	ID string `json:"id" jsonschema:"for tokens.revoke"`
	Identity
	Note    string    `json:"note,omitempty" jsonschema:"what it is for"`
	Created time.Time `json:"created" jsonschema:"when it was created"`
	By      string    `json:"by,omitempty" jsonschema:"who created it"`
	Revoked time.Time `json:"revoked,omitzero" jsonschema:"when it was revoked"`
}

// NewToken is a token that was just created, with its secret.
type NewToken struct {
	Secret string `json:"secret" jsonschema:"the token itself; it is shown only here and stored nowhere"`
	Token
}

// TokenList holds the tokens of a tenant.
type TokenList struct {
	Tokens []Token `json:"tokens" jsonschema:"the tokens"`
}

// OneToken names a token.
type OneToken struct {
	ID string `path:"token" json:"-" jsonschema:"id of the token"`
}

// CreateTicket creates a ticket.
type CreateTicket struct {
	Thread string `json:"thread,omitempty" jsonschema:"the thread whose events it is for; the tenant's stream by default"`
	User   string `json:"user,omitempty" jsonschema:"limits it to the threads of this user"`
}

// Ticket replaces a token once, in the address of an event stream: a browser's
// EventSource cannot send a token.
type Ticket struct {
	Ticket  string    `json:"ticket" jsonschema:"for the query parameter ticket"`
	Expires time.Time `json:"expires" jsonschema:"it must be used before this time"`
}

// Health reports that a server is running.
type Health struct {
	Status string `json:"status" jsonschema:"ok"`
}

// Operations of the server itself.
var (
	FlowsList = define[Nothing, FlowList]("flows.list", "GET /v1/flows", ScopeRead,
		"list the flows that can be started here")
	WorkersList = define[Nothing, WorkerList]("workers.list", "GET /v1/workers", ScopeRead,
		"list the live workers")
	StatsGet = define[Nothing, Stats]("stats.get", "GET /v1/stats", ScopeRead,
		"get statistics of the tenant's threads")
	MeGet = define[Nothing, Me]("me.get", "GET /v1/me", ScopeAny,
		"show whom the token stands for")
	SessionCreate = define[CreateSession, Me]("session.create", "POST /v1/session", ScopeNone,
		"log a browser in with a token", status(http.StatusCreated),
		doc("It sets a cookie that stands for the token for 12 hours, unless the token expires or is revoked earlier. With the cookie, requests that change something need the header Perdure-Console: 1 and must come from a page of the server's own origin."))
	SessionDelete = define[Nothing, None]("session.delete", "DELETE /v1/session", ScopeNone,
		"log a browser out", doc("It removes the cookie. The token stays valid."))
	TokensCreate = define[CreateToken, NewToken]("tokens.create", "POST /v1/tokens", ScopeAdmin,
		"create a token", status(http.StatusCreated))
	TokensList = define[Nothing, TokenList]("tokens.list", "GET /v1/tokens", ScopeAdmin,
		"list the tenant's tokens")
	TokensRevoke = define[OneToken, None]("tokens.revoke", "DELETE /v1/tokens/{token}", ScopeAdmin,
		"revoke a token")
	TicketsCreate = define[CreateTicket, Ticket]("tickets.create", "POST /v1/tickets", ScopeRead,
		"get a one-time ticket for an event stream", status(http.StatusCreated))
	HealthGet = define[Nothing, Health]("health.get", "GET /healthz", ScopeNone,
		"check that the server is running")
	ReadyGet = define[Nothing, Health]("ready.get", "GET /readyz", ScopeNone,
		"check that the store answers and the server is not stopping")
	MetricsGet = define[Nothing, []byte]("metrics.get", "GET /metrics", ScopeAdmin,
		"get Prometheus metrics of the whole server, as an admin of the default tenant", gives(TypeText))
	OpenAPIGet = define[Nothing, json.RawMessage]("openapi.get", "GET /openapi.json", ScopeNone,
		"get the OpenAPI document")
)
