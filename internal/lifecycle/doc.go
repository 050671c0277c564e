// Package lifecycle begins, forks, cancels, retries and erases threads, and tells
// parents how their children end. It may import internal/threads and what that
// imports.
package lifecycle
