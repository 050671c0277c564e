package perdure

import "time"

// WorkerInfo is to come.
type WorkerInfo struct {
	ID      string    `json:"id"`
	Started time.Time `json:"started"`
}
