package provisioner

import (
	"time"

	"github.com/topodisk/topodisk/provisioner/journal"
)

// Healthy returns an error if this process leads and either can't recover or does not
// work off its queues.
func (c *Controller) Healthy() error {
	if err := c.recovery.checkLeader(); err != nil {
		return err
	}
	limit := c.p.config.Timeout + saveTimeout + journal.CommitTimeout + time.Minute // longer than any attempt
	if err := c.exec.liveness.Check(limit); err != nil {
		return err
	}
	return c.deletion.CheckLiveness(limit)
}
