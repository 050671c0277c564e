// Package browser drives Chromium in tests of what people see in a browser. It
// speaks the browser's own debugging protocol over pipes, which Unix can hand to
// a process; it is empty elsewhere.
package browser
