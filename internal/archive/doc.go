// Package archive exports threads to files, reads and verifies such files, and
// imports them. It may import internal/threads and what that imports.
package archive
