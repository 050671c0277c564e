package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// nobody is the user of the image, as in deploy/Dockerfile.
const nobody = 65532

// descriptor points to a blob of the image layout.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Size        int               `json:"size"`
	Digest      string            `json:"digest"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

const mediaType = "application/vnd.oci.image."

// image writes an OCI image layout: for each architecture an image with the programs,
// the certificates of public authorities, and nothing else.
func (r *release) image(systems []system, programs []string, authorities string) error {
	roots, err := os.ReadFile(authorities)
	if err != nil {
		return fmt.Errorf("the image needs the certificates of public authorities: %w", err)
	}
	labels := map[string]string{
		"org.opencontainers.image.title":    "perdure",
		"org.opencontainers.image.version":  strings.TrimPrefix(r.version, "v"),
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.source":   "https://github.com/perdure/perdure",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	var manifests []descriptor
	for _, s := range systems {
		base := []member{
			{name: "etc/", mode: 0o755},
			{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/var/lib/perdure:/sbin/nologin\n")},
			{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnonroot:x:65532:\n")},
			{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: roots},
			{name: "tmp/", mode: 0o1777},
			{name: "var/lib/perdure/", mode: 0o700, user: nobody},
		}
		var files []member
		for _, p := range programs {
			data, err := os.ReadFile(r.built(s, p))
			if err != nil {
				return err
			}
			files = append(files, member{name: "usr/bin/" + p, mode: 0o755, data: data})
		}
		var layers []descriptor
		var contents []string
		for _, members := range [][]member{base, files} {
			layer, content, err := r.layer(members)
			if err != nil {
				return err
			}
			layers, contents = append(layers, layer), append(contents, content)
		}
		config, err := r.object("config.v1+json", map[string]any{
			"created": r.at, "architecture": s.arch, "os": s.os,
			"config": map[string]any{
				"User": "65532:65532", "WorkingDir": "/var/lib/perdure", "StopSignal": "SIGTERM", "Labels": labels,
				"ExposedPorts": map[string]any{"7373/tcp": map[string]any{}},
				"Entrypoint":   []string{"/usr/bin/" + programs[0]},
				"Cmd":          []string{"serve", "--addr", "0.0.0.0:7373", "--store", "sqlite:/var/lib/perdure/perdure.db"},
			},
			"rootfs":  map[string]any{"type": "layers", "diff_ids": contents},
			"history": []any{map[string]any{"created": r.at, "comment": "base"}, map[string]any{"created": r.at, "comment": "programs"}},
		})
		if err != nil {
			return err
		}
		manifest, err := r.object("manifest.v1+json", map[string]any{"schemaVersion": 2, "mediaType": mediaType + "manifest.v1+json", "config": config, "layers": layers})
		if err != nil {
			return err
		}
		manifest.Platform = &platform{s.arch, s.os}
		manifests = append(manifests, manifest)
	}
	index, err := r.object("index.v1+json", map[string]any{"schemaVersion": 2, "mediaType": mediaType + "index.v1+json", "manifests": manifests, "annotations": labels})
	if err != nil {
		return err
	}
	index.Annotations = map[string]string{"org.opencontainers.image.ref.name": labels["org.opencontainers.image.version"]}
	top, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": mediaType + "index.v1+json", "manifests": []descriptor{index}})
	return errors.Join(err,
		os.WriteFile(filepath.Join(r.out, "oci", "index.json"), top, 0o644),
		os.WriteFile(filepath.Join(r.out, "oci", "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644))
}

// layer writes a compressed layer, and returns the digest of what is in it too.
func (r *release) layer(members []member) (d descriptor, content string, err error) {
	var plain, packed bytes.Buffer
	if err := writeTar(&plain, members, r.at); err != nil {
		return d, "", err
	}
	content = fmt.Sprintf("sha256:%x", sha256.Sum256(plain.Bytes()))
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain.Bytes()); err != nil {
		return d, "", err
	}
	if err := z.Close(); err != nil {
		return d, "", err
	}
	d, err = r.blob("layer.v1.tar+gzip", packed.Bytes())
	return d, content, err
}

// object writes a blob of JSON.
func (r *release) object(kind string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return r.blob(kind, data)
}

// blob writes a blob under its digest.
func (r *release) blob(kind string, data []byte) (descriptor, error) {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	folder := filepath.Join(r.out, "oci", "blobs", "sha256")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return descriptor{}, err
	}
	return descriptor{MediaType: mediaType + kind, Size: len(data), Digest: "sha256:" + sum}, os.WriteFile(filepath.Join(folder, sum), data, 0o644)
}
