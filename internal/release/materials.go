package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// component is a part of a program, in the form of CycloneDX.
type component struct {
	Ref      string    `json:"bom-ref"`
	Type     string    `json:"type"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Hashes   []hash    `json:"hashes,omitempty"`
	Licenses []license `json:"licenses,omitempty"`
	URL      string    `json:"purl"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

// materials writes which modules are in each program, as the program itself says: a bill
// of materials of CycloneDX 1.6.
func (r *release) materials(s system, programs []string) error {
	for _, p := range programs {
		info, err := buildinfo.ReadFile(r.built(s, p))
		if err != nil {
			return err
		}
		program := partOf(&info.Main)
		program.Type, program.Name = "application", info.Path
		program.Licenses = make([]license, 1)
		program.Licenses[0].License.ID = "Apache-2.0"
		parts := []component{partOf(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})}
		for _, m := range info.Deps {
			for m.Replace != nil {
				m = m.Replace
			}
			parts = append(parts, partOf(m))
		}
		var refs []string
		for _, c := range parts {
			refs = append(refs, c.Ref)
		}
		data, err := json.MarshalIndent(map[string]any{
			"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
			"metadata":     map[string]any{"component": program},
			"components":   parts,
			"dependencies": []any{map[string]any{"ref": program.Ref, "dependsOn": refs}},
		}, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.name(s, "_"+p+".cdx.json"), append(data, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// partOf returns a module of Go, with the hash that go.sum has for it.
func partOf(m *debug.Module) component {
	url := fmt.Sprintf("pkg:golang/%s@%s", m.Path, strings.ReplaceAll(m.Version, "+", "%2B"))
	c := component{Ref: url, Type: "library", Name: m.Path, Version: m.Version, URL: url}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) == 32 {
		c.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum)}}
	}
	return c
}
