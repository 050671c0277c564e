package threads

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/fault"
)

// Tenants returns the tenants that have threads in the store or in the archive. Known
// maps their parts to them, for callers that come again; Tenants adds to it. One
// whose name cannot be found out, because its threads cannot be read, is left out.
func (c *Threads) Tenants(ctx context.Context, known map[string]*Tenant) ([]*Tenant, error) {
	if err := c.completeIndex(ctx); err != nil {
		return nil, err
	}
	var all []*Tenant
	listed := map[string]bool{}
	for _, of := range []struct {
		prefix, end string
		name        func(ctx context.Context, part string) (string, bool, error)
	}{{indexPrefix, "/", c.tenantOfThreads}, {ArchivedKey(""), ".", c.tenantOfArchived}} {
		for after := ""; ; {
			part, err := c.nextPart(ctx, of.prefix, of.end, after)
			if err != nil {
				return nil, err
			}
			if part == "" {
				break
			}
			after = of.prefix + part + of.end + "~" // after all keys of the tenant
			if listed[part] {
				continue
			}
			if known[part] == nil {
				name, ok, err := of.name(ctx, part)
				if err != nil {
					return nil, err
				}
				if t := c.Tenant(name); ok && t.Part == part {
					known[part] = t
				}
			}
			if known[part] != nil {
				listed[part] = true
				all = append(all, known[part])
			}
		}
	}
	return all, nil
}

// nextPart returns the first part between a prefix and an end in the keys after one,
// "" if there is none.
func (c *Threads) nextPart(ctx context.Context, prefix, end, after string) (string, error) {
	for cell, err := range c.Store.List(ctx, prefix, after) {
		if err != nil {
			return "", fmt.Errorf("looking for tenants: %w", err)
		}
		part, _, _ := strings.Cut(strings.TrimPrefix(cell.Key, prefix), end)
		return part, nil
	}
	return "", nil
}

// tenantOfThreads returns the name of the tenant with a part, from one of its threads.
func (c *Threads) tenantOfThreads(ctx context.Context, part string) (string, bool, error) {
	for cell, err := range c.Store.List(ctx, c.facet(part, "all"), "") {
		if err != nil {
			return "", false, err
		}
		name, _ := parseIndexKey(cell.Key)
		o, err := c.Read(ctx, name)
		switch {
		case err == nil && o.Thread.Seq > 0:
			return o.Thread.Tenant, true, nil
		case err != nil && !IsGone(err) && !errors.Is(err, fault.ErrCorrupt):
			return "", false, err
		}
	}
	return "", false, nil
}

// tenantOfArchived returns the name of the tenant with a part, from one of its archived
// threads.
func (c *Threads) tenantOfArchived(ctx context.Context, part string) (string, bool, error) {
	for cell, err := range c.Store.List(ctx, ArchivedKey("")+part+".", "") {
		if err != nil {
			return "", false, err
		}
		if a, err := DecodeArchived(cell); err == nil && a.ID != "" {
			return a.Tenant, true, nil
		}
	}
	return "", false, nil
}
