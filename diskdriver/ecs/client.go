// Package ecs is the only code that knows the OpenAPI of Alibaba Cloud ECS and
// its SDK. It makes calls, waits out throttling, and says in the words of
// package disk what came of each call; it decides nothing about volumes.
//
// Every error that leaves this package is a *disk.Error. No error holds an
// access key, a security token or a signature.
package ecs

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"sync/atomic"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/instancequeue"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/endpoint"
	"github.com/topodisk/topodisk/diskdriver/ecs/signature"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// Config says which ECS a Client talks to, and as whom.
type Config struct {
	// Region is the ECS region, such as cn-hangzhou. Required.
	Region string
	// Endpoint is a host, host:port or URL without a path. HTTPS is spoken
	// unless it starts with http://. Empty stands for the region's own
	// endpoint, as the SDK knows it.
	Endpoint string
	// Credentials sign every call. Required.
	Credentials credentials.Provider
	// ClusterID is the value of the tag disk.ClusterTag, by which the disks of
	// this cluster are told from others of the same account. Required.
	ClusterID string
	// Transport carries the HTTP requests; nil stands for one that reuses
	// connections and honours the proxy settings of the environment by the
	// rules of net/http.ProxyFromEnvironment.
	Transport http.RoundTripper
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
	// UserAgent is added to the SDK's own; empty stands for topodisk.
	UserAgent string
	// Signature is the version that requests are signed with; empty stands for V3.
	Signature signature.Version
}

// Client calls ECS for the disks of one cluster in one region of one account.
// It is safe for concurrent use, and runs nothing while nobody calls it.
//
// A file has the methods of a role: disks, attachments, tags, stock, instances,
// snapshots, groups of them, and changes of disks in place.
type Client struct {
	shared    *shared
	session   *transport.Session
	queues    *instancequeue.Queues
	describer *describer
	recent    *batch.Recent
	known     knownSnapshots
	namePages atomic.Int64 // of the last list of all disks; 0: there was none

	// The reads that callers share.
	reads     *batch.Disks
	names     *batch.Reader[string, []disk.Disk]
	snapshots *batch.Reader[disk.SnapshotID, disk.Snapshot]
	groups    *batch.Reader[disk.GroupID, disk.Group]
	tasks     *batch.Reader[disk.TaskID, sdkecs.Task]
}

// shared is what the Clients of all accounts share: connections and metrics.
type shared struct {
	clusterID string
	transport *transport.Transport
	waits     *batch.Waits
	metrics   *metrics
}

// NewClient returns a Client, or an error that names the field of the Config,
// its value, and what is allowed. It calls nothing.
func NewClient(config Config) (*Client, error) {
	at, err := config.validate()
	if err != nil {
		return nil, err
	}
	s := &shared{
		clusterID: config.ClusterID,
		transport: transport.New(transport.Config{
			Region: config.Region, Endpoint: at, RoundTripper: config.Transport, UserAgent: cmp.Or(config.UserAgent, "topodisk"),
			Signature: config.Signature,
		}),
		waits:   batch.NewWaits(),
		metrics: newMetrics(),
	}
	if config.Registerer != nil {
		for _, collector := range slices.Concat(s.transport.Collectors(), s.waits.Collectors(), s.metrics.collectors()) {
			if err := config.Registerer.Register(collector); err != nil {
				return nil, fmt.Errorf("ecs.Config.Registerer: %w", err)
			}
		}
	}
	return s.client(config.Credentials), nil
}

// Account returns a Client of the cloud account whose keys a request's secrets
// hold, under the names that credentials.FromSecrets knows. It shares connections
// and metrics with this one; what is known of ECS by account it learns anew. It
// calls nothing.
func (c *Client) Account(secrets map[string]string) (*Client, error) {
	keys, err := credentials.FromSecrets(secrets)
	if err != nil {
		return nil, err
	}
	return c.shared.client(credentials.Static(keys)), nil
}

// client returns a Client of one account.
func (s *shared) client(keys credentials.Provider) *Client {
	session, queues := s.transport.Session(keys), instancequeue.New(s.metrics.countOperations)
	describer := &describer{session: session, turn: make(chan struct{}, 1), countEmpty: s.metrics.countEmpty}
	c := &Client{shared: s, session: session, queues: queues, describer: describer, recent: batch.NewRecent(queues.Observe)}
	disks := newReader(session, transport.DescribeDisks.Name, "disk", diskForm, describer.byID, s.metrics.observeBatch)
	c.reads = batch.NewDisks(disks, c.recent, s.waits, describer.checkSight)
	c.names = batch.NewReader(batch.Config[string, []disk.Disk]{
		Action: transport.DescribeDisks.Name, Size: math.MaxInt, InFlight: nameBatches, Describe: c.disksByName,
		Throttled: func() bool { return session.Throttled(transport.DescribeDisks.Name) },
	})
	c.snapshots = newReader(session, transport.DescribeSnapshots.Name, "snapshot", snapshotForm, c.snapshotsByID, nil)
	c.groups = newReader(session, transport.DescribeSnapshotGroups.Name, "snapshot group", groupForm, c.groupsByID, nil)
	c.tasks = newReader(session, transport.DescribeTasks.Name, "task", taskForm, c.tasksByID, nil)
	return c
}

// newReader returns a Reader whose calls are those of a Session.
func newReader[K ~string, V any](
	s *transport.Session, action, noun string, form *regexp.Regexp, describe func(context.Context, []K) (map[K]V, error), observe func(int),
) *batch.Reader[K, V] {
	return batch.NewReader(batch.Config[K, V]{
		Action: action, Noun: noun, Form: form, Describe: describe, Throttled: func() bool { return s.Throttled(action) }, Observe: observe,
	})
}

func (c *Config) validate() (endpoint.Endpoint, error) {
	if err := endpoint.CheckRegion("ecs.Config.Region", c.Region); err != nil {
		return endpoint.Endpoint{}, err
	}
	switch {
	case c.Credentials == nil:
		return endpoint.Endpoint{}, fmt.Errorf("ecs.Config.Credentials is nil: a source of access keys is required")
	case c.ClusterID == "" || len(c.ClusterID) > 128:
		return endpoint.Endpoint{}, fmt.Errorf("ecs.Config.ClusterID %q: 1 to 128 bytes are required", c.ClusterID)
	}
	if err := cmp.Or(c.Signature, signature.V3).Check(); err != nil {
		return endpoint.Endpoint{}, fmt.Errorf("ecs.Config.Signature: %w", err)
	}
	return endpoint.Parse("ecs.Config.Endpoint", c.Endpoint, "https")
}

// Check makes one cheap call that needs credentials and the permission to see
// disks. An error says which of the two is missing, or that ECS can't be
// reached.
func (c *Client) Check(ctx context.Context) error {
	_, err := c.describer.page(ctx, anyDisk)
	return err
}
