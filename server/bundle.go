package server

import (
	"net/http"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// bundleRun streams a bundle about a run.
func (s *Server) bundleRun(w http.ResponseWriter, r *http.Request, c *Call, in *api.BundleRun) error {
	o := perdure.BundleOptions{Names: in.Names, Hosts: in.Hosts, Contents: in.Contents, About: s.about()}
	return s.sendFile(w, r, c, api.TypeZip, in.Thread, "bundle.zip", func() error {
		return c.Runtime.Bundle(r.Context(), in.Thread, runID(in.Run), w, o)
	})
}

// about says how the server is configured, without names, addresses and secrets.
func (s *Server) about() map[string]any {
	o := &s.opts
	return map[string]any{
		"server": o.Version, "uptime_s": int64(time.Since(s.started) / time.Second), "streams": s.events.open.Load(),
		"tokens": o.Auth != nil, "hosts": len(o.Hosts), "origins": len(o.Origins), "faces": len(o.Faces),
		"max_body": o.MaxBody, "body": o.Body.String(), "heartbeat": o.Heartbeat.String(), "retry": o.Retry.String(), "stall": o.Stall.String(), "connections": o.Connections,
		"limits": o.Limits, "tenant_limits": o.TenantLimits, "token_limits": o.TokenLimits, "user_limits": o.UserLimits,
	}
}
