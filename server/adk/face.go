// Package adk lets clients of Google's Agent Development Kit talk to a Perdure
// server: its client library and its web interface work unchanged. An app is a
// flow, a session is a thread of one user, and an invocation is a run.
//
// It may import package server and what that imports. Enable it with
//
//	server.New(rt, server.Options{Faces: []server.Face{adk.Face()}})
package adk

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/server"
)

// Face returns the routes that clients of the Agent Development Kit call.
func Face() server.Face {
	const sessions = "/apps/{app}/users/{user}/sessions"
	return server.Face{
		{Pattern: "GET /list-apps", Scope: api.ScopeRead, Serve: listApps},
		{Pattern: "GET /version", Scope: api.ScopeNone, Serve: showVersion},
		{Pattern: "GET /health", Scope: api.ScopeNone, Serve: showHealth},
		{Pattern: "GET /apps/{app}/app-info", Scope: api.ScopeRead, Serve: showApp},

		{Pattern: "POST " + sessions, Scope: api.ScopeRun, Serve: createSession},
		{Pattern: "GET " + sessions, Scope: api.ScopeRead, Serve: listSessions},
		{Pattern: "POST " + sessions + "/{session}", Scope: api.ScopeRun, Serve: createSessionAs},
		{Pattern: "GET " + sessions + "/{session}", Scope: api.ScopeRead, Serve: getSession},
		{Pattern: "PATCH " + sessions + "/{session}", Scope: api.ScopeRun, Serve: patchSession},
		{Pattern: "DELETE " + sessions + "/{session}", Scope: api.ScopeAdmin, Serve: deleteSession},

		{Pattern: "POST /run", Scope: api.ScopeRun, Serve: serveRun},
		{Pattern: "POST /run_sse", Scope: api.ScopeRun, Serve: serveRunSSE, Events: true},
	}
}

type wireApp struct {
	Name        string   `json:"name"`
	Root        string   `json:"rootAgentName"`
	Description string   `json:"description"`
	Language    string   `json:"language"`
	ComputerUse bool     `json:"isComputerUse"`
	Agents      []string `json:"agents"`
}

func wireAppOf(flow string) wireApp {
	return wireApp{Name: flow, Root: flow, Language: "go", Agents: []string{flow}}
}

func listApps(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	names := append([]string{}, c.Runtime.Flows()...)
	if r.URL.Query().Get("detailed") != "true" {
		return c.Send(w, http.StatusOK, names)
	}
	apps := []wireApp{}
	for _, name := range names {
		apps = append(apps, wireAppOf(name))
	}
	return c.Send(w, http.StatusOK, map[string]any{"apps": apps})
}

func showVersion(w http.ResponseWriter, _ *http.Request, c *server.Call) error {
	return c.Send(w, http.StatusOK, map[string]string{"version": c.Version(), "language": "go", "language_version": strings.TrimPrefix(runtime.Version(), "go")})
}

func showHealth(w http.ResponseWriter, _ *http.Request, c *server.Call) error {
	return c.Send(w, http.StatusOK, api.Health{Status: "ok"})
}

func showApp(w http.ResponseWriter, r *http.Request, c *server.Call) error {
	if err := checkApp(c, r.PathValue("app")); err != nil {
		return err
	}
	return c.Send(w, http.StatusOK, wireAppOf(r.PathValue("app")))
}

// checkApp returns an error if an app does not exist.
func checkApp(c *server.Call, app string) error {
	if !slices.Contains(c.Runtime.Flows(), app) {
		return fmt.Errorf("%w: there is no app %q", api.ErrNotFound, app)
	}
	return nil
}
