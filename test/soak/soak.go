package main

import (
	"context"
	"sync"
	"time"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// drainLimit is how long may pass after the end of the load until nothing is left of it.
const drainLimit = 10 * time.Minute

// soak takes the inventory, runs the load with its faults while samples are taken, has the load end, and takes the inventory again.
// A context that ends has the load end earlier.
func (e *environment) soak(ctx context.Context) error {
	unhurried := context.WithoutCancel(ctx)
	before, err := e.settledInventory(unhurried)
	if err != nil {
		return err
	}
	if err := e.out.add(inventoryFile, before); err != nil {
		return err
	}
	if err := e.makeSet(unhurried); err != nil {
		return err
	}
	commit, err := programs.Commit(ctx, e.root)
	if err != nil {
		return err
	}
	e.begin = time.Now()
	if err := e.out.begins(About{e.plan, e.begin.UTC(), commit, programs.Machine()}); err != nil {
		return err
	}
	say("the load begins: %d rounds of %v; %s", e.plan.Rounds, e.plan.Round, e.out.dir)
	e.underLoad(ctx)
	say("the load has ended; waiting until nothing is left of it")
	if err := e.drain(unhurried, before); err != nil {
		say("%v", err) // the report says so too, by the inventory
	}
	after, err := e.inventory(unhurried)
	if err != nil {
		return err
	}
	return e.out.add(inventoryFile, after)
}

// settleTime is for how long the inventory must not change before the load begins.
const settleTime = 15 * time.Second

// settledInventory is the inventory once the installation has made all that it makes by itself.
func (e *environment) settledInventory(ctx context.Context) (before Inventory, err error) {
	return before, poll(ctx, "the installation makes nothing more", installLimit, func(ctx context.Context) (bool, error) {
		if before, err = e.inventory(ctx); err != nil {
			return false, err
		}
		time.Sleep(settleTime)
		after, err := e.inventory(ctx)
		if err != nil {
			return false, err
		}
		err = before.Same(after)
		return err == nil && len(after[capacities]) > 0, err
	})
}

// underLoad returns when the plan's length is over, or the context has ended, and no turn of the load is under way.
func (e *environment) underLoad(ctx context.Context) {
	ctx, cancel := context.WithDeadline(ctx, e.begin.Add(e.plan.Length()))
	defer cancel()
	sampling, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var working sync.WaitGroup
	working.Go(func() { e.sample(sampling) })
	var disturbing sync.WaitGroup
	disturbing.Go(func() { e.disturb(ctx) })
	e.load(ctx)
	disturbing.Wait()
	if err := e.out.add(eventsFile, Event{At: e.at(), Round: e.plan.Rounds, Name: loadEnded}); err != nil {
		say("events: %v", err)
	}
	end()
	working.Wait()
}

// drain deletes what is there throughout the load, and waits until all is as before.
func (e *environment) drain(ctx context.Context, before Inventory) error {
	if err := e.lab.Simulator.ClearFaults(ctx); err != nil {
		return err
	}
	if err := e.dropSet(ctx); err != nil {
		return err
	}
	return poll(ctx, "all is as before the load", drainLimit, func(ctx context.Context) (bool, error) {
		after, err := e.inventory(ctx)
		if err != nil {
			return false, err
		}
		err = before.Same(after)
		return err == nil, err
	})
}
