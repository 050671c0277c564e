package main

import (
	"context"
	"crypto/md5"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// debian writes a package with the programs and the units for systemd. It needs
// Debian's dpkg-deb.
func (r *release) debian(ctx context.Context, s system, programs []string) error {
	root := filepath.Join(r.work, "debian", s.arch)
	var sums []string
	var size int
	put := func(name string, mode os.FileMode, data []byte) error {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if !strings.HasPrefix(name, "DEBIAN/") {
			sums = append(sums, fmt.Sprintf("%x  %s\n", md5.Sum(data), name)) // the format wants MD5
			size += len(data)
		}
		if err := os.WriteFile(file, data, mode); err != nil {
			return err
		}
		return os.Chmod(file, mode) // whatever the umask is
	}
	type source struct {
		from string
		mode os.FileMode
	}
	contents := map[string]source{
		"usr/share/doc/perdure/copyright":                {"LICENSE", 0o644},
		"usr/lib/systemd/system/perdure.service":         {"deploy/systemd/perdure.service", 0o644},
		"usr/lib/systemd/system/perdure-worker@.service": {"deploy/systemd/perdure-worker@.service", 0o644},
		"usr/lib/sysusers.d/perdure.conf":                {"deploy/systemd/perdure.sysusers", 0o644},
		"etc/perdure/perdure.env":                        {"deploy/systemd/perdure.env", 0o600},
		"DEBIAN/postinst":                                {"deploy/debian/postinst", 0o755},
		"DEBIAN/prerm":                                   {"deploy/debian/prerm", 0o755},
		"DEBIAN/postrm":                                  {"deploy/debian/postrm", 0o755},
	}
	for name, from := range contents {
		data, err := os.ReadFile(filepath.Join(r.root, from.from))
		if err != nil {
			return err
		}
		if err := put(name, from.mode, data); err != nil {
			return err
		}
	}
	for _, p := range programs {
		data, err := os.ReadFile(r.built(s, p))
		if err != nil {
			return err
		}
		if err := put("usr/bin/"+p, 0o755, data); err != nil {
			return err
		}
	}
	slices.Sort(sums)
	// A prerelease, or what has no tag yet, comes before its version.
	version := strings.ReplaceAll(strings.Replace(strings.TrimPrefix(r.version, "v"), "-", "~", 1), "-", ".")
	control := fmt.Sprintf(`Package: perdure
Version: %s
Architecture: %s
Maintainer: The Perdure authors <perdure@users.noreply.github.com>
Installed-Size: %d
Depends: systemd | systemd-standalone-sysusers
Section: utils
Priority: optional
Homepage: https://github.com/perdure/perdure
Description: durable runtime for AI agents
 Records what an agent does step by step, so that the work survives crashes
 and deploys, and can wait for people.
`, version, s.arch, (size+1023)/1024)
	for name, text := range map[string]string{"control": control, "conffiles": "/etc/perdure/perdure.env\n", "md5sums": strings.Join(sums, "")} {
		if err := put("DEBIAN/"+name, 0o644, []byte(text)); err != nil {
			return err
		}
	}
	file := filepath.Join(r.out, fmt.Sprintf("perdure_%s_%s.deb", version, s.arch))
	_, err := r.command(ctx, "", []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.at.Unix(), 10)},
		"dpkg-deb", "--build", "--root-owner-group", "-Zgzip", root, file)
	return err
}
