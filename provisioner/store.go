package provisioner

import "context"

// store is where requests outlive the process. A key is a claim's UID.
type store interface {
	// Put returns once the record can be read again after a crash.
	Put(ctx context.Context, key string, record []byte) error
	// Prefetch writes a record that will probably be put soon. Nobody is asked for
	// it before it was put.
	Prefetch(key string, record []byte)
	// Cancel deletes a record that was prefetched and not put, and ends its wait
	// for room.
	Cancel(key string)
	// Delete deletes a record within seconds.
	Delete(key string)
	// DeleteLazily deletes a record together with whatever is written next.
	DeleteLazily(key string)
	// Expedite has a record that was deleted lazily deleted within seconds.
	Expedite(key string)
	// AwaitRoom calls wake once there may be room for a record that Put refused
	// with journal.ErrFull.
	AwaitRoom(key string, wake func())
	// RejectEnd takes an operator's request to end a record back.
	RejectEnd(key string)
	// Flush returns nil once a record that was deleted can't be read any more.
	Flush(ctx context.Context, key string) error
	// Size is the size of all records.
	Size() int
}

// noStore forgets everything, for a process without a namespace.
type noStore struct{}

func (noStore) Put(context.Context, string, []byte) error { return nil }
func (noStore) Prefetch(string, []byte)                   {}
func (noStore) Cancel(string)                             {}
func (noStore) Delete(string)                             {}
func (noStore) DeleteLazily(string)                       {}
func (noStore) Expedite(string)                           {}
func (noStore) AwaitRoom(string, func())                  {}
func (noStore) RejectEnd(string)                          {}
func (noStore) Flush(context.Context, string) error       { return nil }
func (noStore) Size() int                                 { return 0 }
