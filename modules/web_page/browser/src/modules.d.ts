declare module "icon:*" {
  /** The elements of an icon: the name of each with its attributes. */
  const shapes: [string, Record<string, string>][];
  export default shapes;
}

declare module "@rails/actioncable" {
  export interface Subscription {
    perform(action: string, data?: object): boolean;
    unsubscribe(): void;
  }
  export interface Callbacks {
    initialized?(): void;
    connected?(info: { reconnected: boolean }): void;
    disconnected?(info: { willAttemptReconnect: boolean }): void;
    rejected?(): void;
    received?(message: any): void;
  }
  export interface Consumer {
    subscriptions: { create(params: object, callbacks: Callbacks): Subscription };
    connect(): boolean;
    disconnect(): void;
  }
  export function createConsumer(url: string): Consumer;
}
