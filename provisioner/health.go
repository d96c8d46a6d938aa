package provisioner

import "time"

// actionTimeout bounds each action of an attempt: a call of the driver and the requests to the API server that belong to it.
func (c Config) actionTimeout() time.Duration { return c.Timeout + time.Minute }

// Healthy returns an error if this process leads and either can't recover or does not
// work off its queues.
func (c *Controller) Healthy() error {
	if err := c.recovery.checkLeader(); err != nil {
		return err
	}
	limit := c.p.config.actionTimeout() + time.Minute
	if err := c.exec.liveness.Check(limit); err != nil {
		return err
	}
	return c.deletion.CheckLiveness(limit)
}
