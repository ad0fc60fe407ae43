// Long work in slices that are shorter than a frame.

/** Works until `deadline`; returns whether it is done. */
export type Work = (deadline: number) => boolean;

const SLICE = 5;
const queue: Work[] = [];
let isRunning = false;

function run(): void {
  const deadline = performance.now() + SLICE;
  while (queue.length > 0 && performance.now() < deadline) {
    const [work] = queue;
    let isDone = true;
    try {
      isDone = work!(deadline);
    } catch (error) {
      // One failure does not end the work of others.
      reportError(error);
    }
    if (isDone && queue[0] === work) queue.shift();
  }
  // A timer lets the browser draw and hear the reader between slices.
  if (queue.length > 0) setTimeout(run, 4);
  else isRunning = false;
}

/** Adds work that is done after that which was added before. */
export function slice(work: Work): void {
  queue.push(work);
  if (isRunning) return;
  isRunning = true;
  setTimeout(run, 0);
}

/** Drops all work, for a conversation that is left. */
export function dropSlices(): void {
  queue.length = 0;
}
