package provisioner

import (
	"context"

	"github.com/topodisk/topodisk/provisioner/journal"
)

// store is the journal: its records outlive the process. A key is a claim's UID.
type store interface {
	// Put returns once the record can be read again after a crash.
	Put(ctx context.Context, key string, record []byte) error
	// Prefetch writes a record that will probably be put soon, without waiting.
	Prefetch(key string, record []byte)
	// Cancel deletes a record that was prefetched and not put, and undoes AwaitRoom.
	Cancel(key string)
	// Delete deletes a record within seconds.
	Delete(key string)
	// DeleteLazily deletes a record with the next write, or within about a minute.
	DeleteLazily(key string)
	// Expedite deletes a record within seconds that was deleted lazily.
	Expedite(key string)
	// AwaitRoom calls wake once there may be room for a record that Put refused.
	AwaitRoom(refused *journal.FullError, wake func())
	// RejectEnd removes an operator's request to end a record.
	RejectEnd(key string)
	// Flush returns nil once a record that was deleted can't be read any more.
	Flush(ctx context.Context, key string) error
	// Size is the size of all records.
	Size() int
}

// noStore keeps no record, for a process without a namespace.
type noStore struct{}

func (noStore) Put(context.Context, string, []byte) error { return nil }
func (noStore) Prefetch(string, []byte)                   {}
func (noStore) Cancel(string)                             {}
func (noStore) Delete(string)                             {}
func (noStore) DeleteLazily(string)                       {}
func (noStore) Expedite(string)                           {}
func (noStore) AwaitRoom(*journal.FullError, func())      {}
func (noStore) RejectEnd(string)                          {}
func (noStore) Flush(context.Context, string) error       { return nil }
func (noStore) Size() int                                 { return 0 }
